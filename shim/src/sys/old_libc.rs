//! Replacements of libc functions that the `libc.so.6` of glibc 2.17 lacks, or has in another library.
//!
//! A preload that names a symbol version newer than a system's libc keeps every process there from starting. So the
//! library names nothing newer than GLIBC_2.17: the functions below replace, inside this library only (they are
//! hidden), those that std, libgcc's unwinder and the shim would use from libc. There are three kinds: thin system
//! calls, including the clocks, which other libraries replace; functions that were in libpthread before 2.34, looked
//! up when they are called; and functions that an old libc, and musl, lack: among them
//! `_dl_find_object`, by which libgcc_eh of GCC 12 and later finds an object's unwind tables. A test reads the versions from the built library.
#![allow(unsafe_code, reason = "stands in for libc's functions")]

use std::{
    ffi::{c_char, c_int, c_long, c_uint, c_void},
    mem::transmute,
    sync::atomic::{AtomicI32, AtomicPtr, Ordering::*},
};

use super::{elf, libc_dl};

/// Gives a function of this file a C name that only this library sees.
macro_rules! hidden {
    ($($name:literal => $function:path;)*) => {
        $(hidden!($name, $function,
            #[cfg(target_arch = "x86_64")] "jmp",
            #[cfg(target_arch = "aarch64")] "b");)*
    };
    ($name:literal, $function:path, $(#[$arch:meta] $jump:literal),*) => {
        $(#[$arch]
        std::arch::global_asm!(
            concat!(".pushsection .text.gpushare", $name, ",\"ax\",%progbits"),
            concat!(".globl ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", %function"),
            concat!($name, ":"),
            concat!($jump, " {function}"),
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            function = sym $function,
        );)*
    };
}

hidden! {
    "stat64" => stat;
    "fstat64" => fstat;
    "lstat64" => lstat;
    "statx" => statx;
    "getrandom" => getrandom;
    "clock_gettime" => clock_gettime;
    "nanosleep" => nanosleep;
    "clock_nanosleep" => clock_nanosleep;
    "gettid" => gettid;
    "pthread_sigmask" => sigmask;
    "pthread_create" => thread_create;
    "pthread_attr_setstacksize" => set_stack_size;
    "pthread_key_create" => key_create;
    "__pthread_key_create" => key_create;
    "pthread_key_delete" => key_delete;
    "pthread_setspecific" => set_specific;
    "pthread_once" => once;
    "__cxa_thread_atexit_impl" => at_thread_exit;
    "_dl_find_object" => find_object;
}

/// Does the work of `stat64`, which like `lstat64` is a symbol of libc since 2.33. The kernel's record is glibc's on
/// 64-bit machines.
extern "C" fn stat(path: *const c_char, found: *mut libc::stat64) -> c_int {
    // SAFETY: the caller's own arguments for this call.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, found, 0) as c_int }
}

extern "C" fn lstat(path: *const c_char, found: *mut libc::stat64) -> c_int {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the caller's own arguments for this call.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, found, flags) as c_int }
}

extern "C" fn fstat(file: c_int, found: *mut libc::stat64) -> c_int {
    // SAFETY: the caller's own arguments for this call.
    unsafe { libc::syscall(libc::SYS_fstat, file, found) as c_int }
}

extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    found: *mut libc::statx,
) -> c_int {
    // SAFETY: the caller's own arguments for this call.
    unsafe { libc::syscall(libc::SYS_statx, dir, path, flags, mask, found) as c_int }
}

extern "C" fn getrandom(place: *mut c_void, bytes: usize, flags: c_uint) -> isize {
    // SAFETY: the caller's own arguments for this call.
    unsafe { libc::syscall(libc::SYS_getrandom, place, bytes, flags) as isize }
}

/// Reads the kernel's clock. libc's clock may be replaced (libfaketime), and then a wait of the shim, or of std on
/// its behalf, would end at a time that never comes.
extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's own arguments for this call.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int }
}

extern "C" fn nanosleep(time: *const libc::timespec, rest: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's own arguments for this call.
    unsafe { libc::syscall(libc::SYS_nanosleep, time, rest) as c_int }
}

/// Sleeps by a clock. Returns the error number itself, like the libc function.
extern "C" fn clock_nanosleep(
    clock: libc::clockid_t,
    flags: c_int,
    time: *const libc::timespec,
    rest: *mut libc::timespec,
) -> c_int {
    // SAFETY: the caller's own arguments for this call.
    let done = unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, flags, time, rest) };
    if done == 0 { 0 } else { last_error() }
}

extern "C" fn gettid() -> libc::pid_t {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// Changes the signal mask. Returns the error number itself, like the libc function.
extern "C" fn sigmask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
    const KERNEL_BYTES: usize = 8;
    // SAFETY: the caller's own arguments for this call; libc's sets are longer than the kernel's.
    let done = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, old, KERNEL_BYTES) };
    if done == 0 { 0 } else { last_error() }
}

fn last_error() -> c_int {
    let error = std::io::Error::last_os_error().raw_os_error();
    error.unwrap_or(libc::EINVAL)
}

/// Defines a function that calls libc's function of this name, looked up at the first call that finds it.
macro_rules! wherever_it_is {
    ($(fn $function:ident = $name:literal ($($arg:ident: $type:ty),*) else $otherwise:expr;)*) => {
        $(extern "C" fn $function($($arg: $type),*) -> c_int {
            static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let mut known = KNOWN.load(Relaxed);
            if known.is_null() {
                known = libc_dl::of_libc($name);
                KNOWN.store(known, Relaxed);
            }
            if known.is_null() {
                return $otherwise;
            }
            // SAFETY: libc's function of this name has this type.
            let real = unsafe {
                transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(known)
            };
            // SAFETY: the caller's own arguments for this function.
            unsafe { real($($arg),*) }
        })*
    };
}

// Without libpthread no threads can be created, and no second thread needs a key.
wherever_it_is! {
    fn thread_create = c"pthread_create"(
        id: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        body: *mut c_void,
        argument: *mut c_void
    ) else libc::EAGAIN;
    fn set_stack_size = c"pthread_attr_setstacksize"(
        attributes: *mut libc::pthread_attr_t,
        bytes: usize
    ) else 0;
    fn key_create = c"pthread_key_create"(
        key: *mut libc::pthread_key_t,
        destructor: *mut c_void
    ) else libc::EAGAIN;
    fn key_delete = c"pthread_key_delete"(key: libc::pthread_key_t) else libc::EINVAL;
    fn set_specific = c"pthread_setspecific"(
        key: libc::pthread_key_t,
        value: *const c_void
    ) else libc::EINVAL;
    // New in glibc 2.18. Without it, a few bytes of std leak when a thread ends.
    fn at_thread_exit = c"__cxa_thread_atexit_impl"(
        destructor: *mut c_void,
        object: *mut c_void,
        library: *mut c_void
    ) else 0;
}

/// Runs `fill` once. Only libgcc's unwinder calls it, to fill a table with constants, so a second run does no harm.
extern "C" fn once(control: *const AtomicI32, fill: extern "C" fn()) -> c_int {
    const DONE: c_int = 2;
    // SAFETY: the caller's own word, written only here.
    let control = unsafe { &*control };
    // ORDER: Acquire pairs with the Release below; the table is filled.
    if control.load(Acquire) != DONE {
        fill();
        // ORDER: Release publishes the table.
        control.store(DONE, Release);
    }
    0
}

const _: () = assert!(
    size_of::<c_long>() == 8,
    "the kernel's records are glibc's on 64-bit machines only"
);

/// The glibc type `struct dl_find_object`, on the supported architectures.
#[repr(C)]
struct Found {
    flags: u64,
    map_start: *const c_void,
    map_end: *const c_void,
    link_map: *const c_void,
    eh_frame: *const c_void,
    _reserved: [u64; 7],
}

extern "C" fn find_object(address: *const c_void, found: *mut Found) -> c_int {
    let object = elf::visit(|object| {
        if !object.contains(address as usize) {
            return None;
        }
        Some((object.span(), object.unwind_table()?))
    });
    let Some(((start, end), table)) = object else {
        return -1;
    };
    let answer = Found {
        flags: 0,
        map_start: start as *const c_void,
        map_end: end as *const c_void,
        link_map: std::ptr::null(),
        eh_frame: table as *const c_void,
        _reserved: [0; 7],
    };
    // SAFETY: the unwinder passes its own record.
    unsafe { found.write(answer) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, fs, os::unix::fs::MetadataExt, process, thread};

    #[test]
    fn a_files_record_is_the_one_that_libc_gives() {
        // The std of this test program uses the functions above.
        let path = std::env::current_exe().expect("its own path");
        let by_name = fs::metadata(&path).expect("it is there");
        let opened = fs::File::open(&path).expect("it can be read");
        let by_file = opened.metadata().expect("it is open");
        assert!(by_name.len() > 100_000 && by_name.is_file());
        assert_eq!(
            (by_name.len(), by_name.ino()),
            (by_file.len(), by_file.ino())
        );
        // SAFETY: all-zero is a valid record to be overwritten.
        let mut found: libc::stat64 = unsafe { std::mem::zeroed() };
        assert_eq!(stat(c"/proc/self/exe".as_ptr(), &mut found), 0);
        assert_eq!(
            (found.st_size as u64, found.st_ino),
            (by_name.len(), by_name.ino())
        );
        assert_eq!(lstat(c"/proc/self/exe".as_ptr(), &mut found), 0);
        assert_eq!(found.st_mode & libc::S_IFMT, libc::S_IFLNK);
        assert_eq!(stat(c"/no/such/file".as_ptr(), &mut found), -1);
    }

    #[test]
    fn threads_run_and_what_they_keep_is_dropped_when_they_end() {
        thread_local!(static KEPT: Cell<Option<Told>> = const { Cell::new(None) });
        static DROPPED: AtomicI32 = AtomicI32::new(0);
        struct Told;
        impl Drop for Told {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, Relaxed);
            }
        }
        let thread = thread::spawn(|| {
            KEPT.set(Some(Told));
            gettid()
        });
        let id = thread.join().expect("it ends well");
        assert!(id > 0 && id != process::id() as i32);
        assert_eq!(DROPPED.load(Relaxed), 1);
    }

    #[test]
    fn a_table_is_filled_before_anybody_goes_on() {
        static FILLED: AtomicI32 = AtomicI32::new(0);
        extern "C" fn fill() {
            FILLED.fetch_add(1, Relaxed);
        }
        let control = AtomicI32::new(0);
        assert_eq!((once(&control, fill), once(&control, fill)), (0, 0));
        assert_eq!(FILLED.load(Relaxed), 1);
    }
}
