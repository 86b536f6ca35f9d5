//! The heavy side of a gate's synchronisation: launching threads do a plain store and a load, and the thread that
//! closes a gate orders the accesses of all.
//!
//! `membarrier(PRIVATE_EXPEDITED)` makes every running thread of the process pass a full barrier. If the kernel lacks
//! it, or a sandbox forbids it, gates stay closed under a lock policy. Every submission then locks the turn's mutex,
//! which orders all accesses. A program may enter such a sandbox while gates are open. From then on the thread that
//! closes a gate waits until the stores of all processors are visible.
#![allow(unsafe_code, reason = "membarrier system call")]

use std::{
    sync::atomic::{AtomicU32, Ordering::*, fence},
    time::Duration,
};

use super::futex;

const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 16;
const PRIVATE_EXPEDITED: libc::c_int = 8;

const UNKNOWN: u32 = 0;
const EXPEDITED: u32 = 1;
const SLOW: u32 = 2;
/// The method was [`EXPEDITED`]: gates that were opened then may still be open.
const FAILING: u32 = 3;

/// Time after which stores are visible. A processor needs less than a microsecond; a thread that leaves its processor
/// needs none.
const STORES_ARE_SEEN: Duration = Duration::from_millis(1);

static MEANS: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Chooses the method; called at registration, and again in a forked child.
pub fn prepare() {
    let means = if membarrier(REGISTER_PRIVATE_EXPEDITED) {
        EXPEDITED
    } else {
        SLOW
    };
    MEANS.store(means, Relaxed);
}

/// Returns after every thread of this process has passed a full barrier since the call.
pub fn heavy() {
    // ORDER: with the barrier that every launching thread passes, this orders its store of `inside` and load of the
    // gate against this thread's store of the gate and load of `inside`.
    fence(SeqCst);
    heavy_by(&MEANS, || membarrier(PRIVATE_EXPEDITED));
}

fn heavy_by(means: &AtomicU32, membarrier: impl FnOnce() -> bool) {
    if means.load(Relaxed) == EXPEDITED && !membarrier() {
        means.store(FAILING, Relaxed);
    }
    if means.load(Relaxed) == FAILING {
        futex::nap(STORES_ARE_SEEN);
    }
}

/// Returns true if [`heavy`] is a barrier, so that a gate may be open while the lock is held.
pub fn is_cheap() -> bool {
    MEANS.load(Relaxed) == EXPEDITED
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the arguments are no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_barrier_that_begins_to_fail_waits_from_then_on() {
        let means = AtomicU32::new(EXPEDITED);
        heavy_by(&means, || true);
        assert_eq!(means.load(Relaxed), EXPEDITED);
        for _ in 0..2 {
            let began = Instant::now();
            heavy_by(&means, || false);
            assert!(began.elapsed() >= STORES_ARE_SEEN);
            assert_ne!(means.load(Relaxed), EXPEDITED);
        }
    }
}
