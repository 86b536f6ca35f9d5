//! The first refusal for libraries that keep freed memory and empty that cache when an allocation fails.
//!
//! PyTorch and CuPy react to `CUDA_ERROR_OUT_OF_MEMORY`: they release their cache and allocate again. With
//! `on-full=wait` they would never see the error, and would wait, or make others wait, although their cache holds
//! unused memory. So if such a library is loaded and the process holds memory, the first refusal is returned to it,
//! and the thread's next attempt waits. The libraries are recognised by their names; a program without them is never
//! refused first. An allocation that is smaller than any of theirs is another library's in the same process, which would
//! fail: cublasCreate allocates 129 KiB (H100, 580.159.04). But it may allocate 64 MiB too, so where others make room by leaving
//! the device nobody is refused first.

use super::account::Account;

use crate::{managed_process::ManagedProcess, sys::elf, thread::Thread, tracking::Refused};

/// Parts of the paths of libraries that empty their cache, and the bytes of the smallest allocation that each makes.
const EMPTY_THEIR_CACHE: [(&[u8], u64); 2] = [(b"libc10_cuda.so", 2 << 20), (b"/cupy/", 0)];

/// Returns true if the refusal must go to the application, because the application may free memory itself.
pub fn is_to_be_refused(process: &ManagedProcess, account: Account, bytes: u64) -> bool {
    if !account.can_be_cached() || account.ledger().used() == 0 || !is_cached(bytes) {
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

/// Removes a thread whose attempt waited and was refused, so that its next refusal counts as the first.
pub fn forget(process: &ManagedProcess, thread: &Thread) {
    process.memory.caches.forget(thread.number());
}

fn is_cached(bytes: u64) -> bool {
    let known = |path: &[u8]| {
        let has = |name: &[u8]| path.windows(name.len()).any(|part| part == name);
        EMPTY_THEIR_CACHE
            .iter()
            .any(|(name, least)| bytes >= *least && has(name))
    };
    elf::visit(|object| known(object.path().to_bytes()).then_some(())).is_some()
}
