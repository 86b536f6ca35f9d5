//! Typed wrappers of Slurm's plugin functions. Names, numbers and signatures are those of the manual page spank(7).

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

use shm_layout::text::without_error_numbers;

/// The handle that Slurm passes to a hook.
#[derive(Clone, Copy)]
pub struct Spank(NonNull<c_void>);

/// The program in which a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// In srun, sbatch or salloc.
    Submission,
    /// In slurmstepd, before the tasks start.
    Step,
    /// In any other program.
    Other,
}

/// A number of the job; the value is the item's number in Slurm.
#[derive(Clone, Copy)]
pub enum Item {
    Uid = 0,
    Gid = 1,
    Job = 2,
}

/// A plugin's option, in Slurm's layout.
#[repr(C)]
pub struct Opt {
    pub name: *const c_char,
    pub arginfo: *const c_char,
    pub usage: *const c_char,
    pub has_arg: c_int,
    pub val: c_int,
    pub callback: extern "C" fn(c_int, *const c_char, c_int) -> c_int,
}

// SAFETY: the pointers are to constant texts.
unsafe impl Sync for Opt {}

/// Slurm's functions, looked up in the program that has loaded the plugin. In a program without them each returns `ABSENT`.
macro_rules! slurms {
    ($(fn $name:ident($($type:ty),*; $($dots:tt)?);)*) => {
        $(fn $name() -> Option<unsafe extern "C" fn($($type,)* $($dots)?) -> c_int> {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("one zero, at the end"),
            };
            let address = look_up(NAME);
            // SAFETY: Slurm's function of this name has this shape, by its manual page.
            (!address.is_null()).then(|| unsafe { std::mem::transmute(address) })
        })*
    };
}

slurms! {
    fn spank_context(;);
    fn spank_get_item(*mut c_void, c_int; ...);
    fn spank_getenv(*mut c_void, *const c_char, *mut c_char, c_int;);
    fn spank_setenv(*mut c_void, *const c_char, *const c_char, c_int;);
    fn spank_job_control_setenv(*mut c_void, *const c_char, *const c_char, c_int;);
    fn spank_option_register(*mut c_void, *const Opt;);
    fn slurm_error(*const c_char; ...);
}

fn look_up(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends in a zero.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Result for a missing function; no Slurm function returns it.
const ABSENT: c_int = -1;

const LONGEST: usize = 1 << 16;

impl Spank {
    /// Wraps the handle of a hook; `None` if it is null.
    pub fn of(pointer: *mut c_void) -> Option<Self> {
        NonNull::new(pointer).map(Self)
    }

    fn raw(self) -> *mut c_void {
        self.0.as_ptr()
    }

    /// Returns a number of the job.
    pub fn number(self, item: Item) -> Option<u32> {
        let mut value = 0_u32;
        // SAFETY: Slurm writes one u32 for each of these items, and keeps no pointer.
        let code = spank_get_item().map_or(ABSENT, |ask| unsafe {
            ask(self.raw(), item as c_int, &raw mut value)
        });
        (code == 0).then_some(value)
    }

    /// Returns a variable of the tasks' environment.
    pub fn variable(self, name: &str) -> Option<String> {
        let name = CString::new(name).ok()?;
        let mut text = vec![0_u8; LONGEST];
        let len = c_int::try_from(text.len()).ok()?;
        // SAFETY: the name ends in a zero, and Slurm writes at most `len` bytes.
        let code = spank_getenv().map_or(ABSENT, |ask| unsafe {
            ask(self.raw(), name.as_ptr(), text.as_mut_ptr().cast(), len)
        });
        let text = CStr::from_bytes_until_nul(&text).ok()?;
        (code == 0).then(|| text.to_string_lossy().into_owned())
    }

    /// Sets a variable of the tasks' environment.
    pub fn set(self, name: &str, value: &str) -> bool {
        let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) else {
            return false;
        };
        // SAFETY: both end in a zero, and Slurm copies them.
        let code = spank_setenv().map_or(ABSENT, |set| unsafe {
            set(self.raw(), name.as_ptr(), value.as_ptr(), 1)
        });
        code == 0
    }

    /// Sets a variable that the job's tasks receive as `SLURM_SPANK_NAME`.
    pub fn set_for_job(self, name: &str, value: &str) -> bool {
        let (Ok(name), Ok(value)) = (CString::new(name), CString::new(value)) else {
            return false;
        };
        // SAFETY: both end in a zero, and Slurm copies them.
        let code = spank_job_control_setenv().map_or(ABSENT, |set| unsafe {
            set(self.raw(), name.as_ptr(), value.as_ptr(), 1)
        });
        code == 0
    }

    /// Adds an option to srun, sbatch and salloc.
    pub fn register(self, option: &'static Opt) -> bool {
        // SAFETY: the option is constant, and Slurm copies it.
        let code = spank_option_register().map_or(ABSENT, |add| unsafe { add(self.raw(), option) });
        code == 0
    }
}

/// Returns the kind of program in which the hook runs.
pub fn context() -> Context {
    // SAFETY: the function takes no arguments.
    match spank_context().map_or(ABSENT, |ask| unsafe { ask() }) {
        1 | 3 => Context::Submission,
        2 => Context::Step,
        _ => Context::Other,
    }
}

/// Writes a message to the job's output and to the log of the daemon in which this runs.
pub fn complain(sentence: &str) {
    if let (Ok(sentence), Some(say)) = (
        CString::new(format!("gpushare: {}", without_error_numbers(sentence))),
        slurm_error(),
    ) {
        // SAFETY: the format takes one text, which ends in a zero.
        unsafe { say(c"%s".as_ptr(), sentence.as_ptr()) };
    }
}

/// Returns the version that the plugin must state: the loading Slurm's release, derived from its library's version.
pub fn version() -> Option<u32> {
    let address = look_up(c"slurm_api_version");
    if address.is_null() {
        return None;
    }
    // SAFETY: Slurm's function of this name takes nothing and returns a long.
    let ask: extern "C" fn() -> std::ffi::c_long = unsafe { std::mem::transmute(address) };
    release(u32::try_from(ask() >> 16).ok()?)
}

/// Returns the release of a library number: 22.05 has 38, and each later release has one more.
fn release(library: u32) -> Option<u32> {
    const RELEASES: [(u32, u32); 3] = [(5, 22), (2, 23), (11, 23)];
    let since = library.checked_sub(38)?;
    let (month, year) = match RELEASES.get(since as usize) {
        Some(release) => *release,
        // 24.05, 24.11, 25.05, …
        None => ([5, 11][(since as usize + 1) % 2], 24 + (since - 3) / 2),
    };
    Some(year << 16 | month << 8)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_release_follows_from_the_number_of_slurms_library() {
        for (library, release) in [
            (38, 0x16_0500),
            (39, 0x17_0200),
            (40, 0x17_0b00),
            (41, 0x18_0500),
            (42, 0x18_0b00),
            (43, 0x19_0500),
            (44, 0x19_0b00),
        ] {
            assert_eq!(super::release(library), Some(release), "{library}");
        }
        assert_eq!(super::release(37), None);
    }
}
