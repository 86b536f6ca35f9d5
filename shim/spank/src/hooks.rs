//! The symbols that Slurm looks up in a plugin: its name, type and version, and the hooks.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use shm_layout::text::parse_amount;

use crate::slurm::{self, Context, Opt, Spank, complain};
use crate::step::{self, Settings, WISHES_OF_JOB};

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

/// The options, each with its place in [`WISHES_OF_JOB`] as its number.
static OPTIONS: [Opt; 2] = [
    Opt {
        name: c"gpu-mem".as_ptr(),
        arginfo: c"SIZE|%".as_ptr(),
        usage: c"gpushare: memory that all processes of the job may use of each GPU".as_ptr(),
        has_arg: 1,
        val: 0,
        callback: chosen,
    },
    Opt {
        name: c"gpu-reserve".as_ptr(),
        arginfo: c"SIZE|%".as_ptr(),
        usage: c"gpushare: memory of each GPU that no other job can take".as_ptr(),
        has_arg: 1,
        val: 1,
        callback: chosen,
    },
];

/// The values of the options in this process.
static WISHES: Mutex<[Option<String>; 2]> = Mutex::new([None, None]);

fn wishes() -> [Option<String>; 2] {
    let wishes = WISHES.lock();
    wishes.map_or([None, None], |wishes| wishes.clone())
}

extern "C" fn chosen(number: c_int, value: *const c_char, remote: c_int) -> c_int {
    let index = usize::try_from(number).unwrap_or(usize::MAX);
    let Some(wish) = WISHES_OF_JOB.get(index) else {
        return FINE;
    };
    if value.is_null() {
        return FINE;
    }
    // SAFETY: Slurm gives the option's value, which ends in a zero.
    let value = unsafe { CStr::from_ptr(value) }
        .to_string_lossy()
        .into_owned();
    let read = catch_unwind(|| parse_amount(&value).map(drop));
    if let Ok(Err(error)) = read {
        complain(&format!("--{}: {error}", wish.option));
        // The only error that is returned: it ends nothing but the command that was typed.
        return if remote == 0 { -1 } else { FINE };
    }
    if let Ok(mut wishes) = WISHES.lock() {
        wishes[index] = Some(value);
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
        for option in &OPTIONS {
            spank.register(option);
        }
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
            Context::Submission => step::submit(spank, &wishes()),
            Context::Step => step::begin(spank, settings, wishes()),
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
