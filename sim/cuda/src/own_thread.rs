//! Threads of the driver's own in the application's process, and the ends of all threads.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{dangling, null_mut};
use std::sync::OnceLock;

/// Starts a thread. It takes no signals, because those belong to the application.
pub fn start(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: both sets are live, the first is filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr()) };
    let started = std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(body);
    // SAFETY: `old` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), null_mut()) };
    started.map(|_| ())
}

/// Gives the calling thread a name that a driver (580.159.04) gives its own threads, and returns its ID.
pub fn be_named() -> u32 {
    let number = id();
    if let Ok(name) = std::ffi::CString::new(format!("cuda{number:011x}")) {
        // SAFETY: a C string of 15 characters, which is copied.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
    number
}

fn id() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Has `clean` called when the calling thread ends. Unlike the destructor of a `thread_local!`, it is not called when the process
/// ends: the application's exit handlers still use what it would remove. `key` belongs to `clean`.
pub fn at_end(key: &OnceLock<libc::pthread_key_t>, clean: extern "C" fn(*mut c_void)) {
    let key = key.get_or_init(|| {
        // No key, if none can be made.
        let mut key = libc::pthread_key_t::MAX;
        // SAFETY: writes the key to a local variable.
        unsafe { libc::pthread_key_create(&mut key, Some(clean)) };
        key
    });
    // SAFETY: the value only has to differ from NULL; without a key the call does nothing.
    unsafe { libc::pthread_setspecific(*key, dangling::<u8>().cast()) };
}
