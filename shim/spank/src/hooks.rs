//! The symbols that Slurm looks up in a plugin: its name, type and version, and the hooks.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use shm_layout::text::parse_amount;

use crate::slurm::{self, Context, Opt, Spank, complain};
use crate::step::{self, Settings};

/// Success, the only result of a hook.
const FINE: c_int = 0;

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "Slurm's name")]
static plugin_name: [u8; 9] = *b"gpushare\0";
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "Slurm's name")]
static plugin_type: [u8; 6] = *b"spank\0";
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "Slurm's name")]
static spank_plugin_version: u32 = 1;
/// Slurm loads only plugins of its own release. No interface used here has changed since 22.05, so the constructor sets this to
/// the release of the loading program before Slurm reads it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "Slurm's name")]
static plugin_version: AtomicU32 = AtomicU32::new(0x16_0500);

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    if let Some(version) = slurm::version() {
        plugin_version.store(version, Ordering::Relaxed);
    }
}

static GPU_MEM: Opt = Opt {
    name: c"gpu-mem".as_ptr(),
    arginfo: c"SIZE|%".as_ptr(),
    usage: c"gpushare: memory that all processes of the job may use of each GPU".as_ptr(),
    has_arg: 1,
    val: 0,
    callback: chosen,
};

/// The value of `--gpu-mem` in this process.
static WISH: Mutex<Option<String>> = Mutex::new(None);

fn wish() -> Option<String> {
    WISH.lock().ok()?.clone()
}

extern "C" fn chosen(_: c_int, value: *const c_char, remote: c_int) -> c_int {
    if value.is_null() {
        return FINE;
    }
    // SAFETY: Slurm gives the option's value, which ends in a zero.
    let value = unsafe { CStr::from_ptr(value) }
        .to_string_lossy()
        .into_owned();
    let read = catch_unwind(|| parse_amount(&value).map(drop));
    if let Ok(Err(error)) = read {
        complain(&format!("--gpu-mem: {error}"));
        // The only error that is returned: it ends nothing but the command that was typed.
        return if remote == 0 { -1 } else { FINE };
    }
    if let Ok(mut wish) = WISH.lock() {
        *wish = Some(value);
    }
    FINE
}

/// Runs a hook and always returns success.
fn hook(
    spank: *mut c_void,
    count: c_int,
    words: *const *const c_char,
    work: impl FnOnce(Spank, &Settings),
) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let count = usize::try_from(count).unwrap_or(0);
        let words = (0..count).filter_map(|at| {
            // SAFETY: Slurm gives `count` words.
            let at = unsafe { words.add(at) };
            // SAFETY: as above.
            let word = unsafe { *at };
            if word.is_null() {
                return None;
            }
            // SAFETY: each word ends in a zero.
            let word = unsafe { CStr::from_ptr(word) };
            Some(word.to_string_lossy().into_owned())
        });
        let settings = Settings::read(words);
        if let Some(spank) = Spank::of(spank) {
            work(spank, &settings);
        }
    }));
    if done.is_err() {
        complain("the plugin failed; the job runs as it is");
    }
    FINE
}

#[unsafe(no_mangle)]
extern "C" fn slurm_spank_init(
    spank: *mut c_void,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    hook(spank, count, words, |spank, _| {
        spank.register(&GPU_MEM);
    })
}

#[unsafe(no_mangle)]
extern "C" fn slurm_spank_init_post_opt(
    spank: *mut c_void,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    hook(
        spank,
        count,
        words,
        |spank, settings| match slurm::context() {
            Context::Submission => {
                if let Some(wish) = wish() {
                    step::submit(spank, &wish);
                }
            }
            Context::Step => step::begin(spank, settings, wish()),
            Context::Other => {}
        },
    )
}

#[unsafe(no_mangle)]
extern "C" fn slurm_spank_job_epilog(
    spank: *mut c_void,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    hook(spank, count, words, step::end)
}
