//! Libraries that keep freed memory and empty that cache when an allocation fails: they are refused first, once.
//!
//! PyTorch and CuPy answer `CUDA_ERROR_OUT_OF_MEMORY` by giving back what they keep and asking again. With `on-full=wait`
//! they would never see the error, and wait, or make others wait, beside memory that nothing uses. So where such a library is
//! loaded and the process holds anything, the first refusal is passed on, and the thread's next try waits. Which libraries do
//! that is known by their names; a program that does not is never refused first.

use super::account::Account;

use crate::{managed_process::ManagedProcess, sys::elf, thread::Thread, tracking::cache::Refused};

/// In the path of a library that does.
const EMPTY_THEIR_CACHE: [&[u8]; 2] = [b"libc10_cuda.so", b"/cupy/"];

/// Whether the refusal goes to the application, for it may make room itself now.
pub fn is_to_be_refused(process: &ManagedProcess, account: Account) -> bool {
    if !account.can_be_cached() || account.ledger().used() == 0 || !is_caching() {
        return false;
    }
    let thread = account.thread();
    let granted = thread
        .tally(account.ordinal())
        .allocations
        .load(std::sync::atomic::Ordering::Relaxed);
    let this = Refused {
        thread: thread.number(),
        granted,
    };
    process.memory.caches.is_first(this)
}

/// A try that waited was refused: the next one begins anew.
pub fn forget(process: &ManagedProcess, thread: &Thread) {
    process.memory.caches.forget(thread.number());
}

fn is_caching() -> bool {
    let known = |path: &[u8]| {
        let has = |name: &&[u8]| path.windows(name.len()).any(|part| part == *name);
        EMPTY_THEIR_CACHE.iter().any(has)
    };
    elf::visit(|object| known(object.path().to_bytes()).then_some(())).is_some()
}
