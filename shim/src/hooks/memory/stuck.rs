//! The check whether another thread of this process could free memory while one waits for the process's own quota.
//!
//! | a thread | could free |
//! |---|---|
//! | waits for the process's own quota as well, or behind the waiting thread for another limit | no |
//! | is in a call of the driver | yes |
//! | has called the driver before, and waits for another thread: a lock, a condition, a thread's end | no |
//! | has called the driver before, and does anything else, including sleep | yes |
//! | has never called the driver, and runs | yes: its first call may free |
//! | has never called the driver, and sleeps | no |
//! | is the shim's, or the driver's and not running | no |
//!
//! The kernel reports the state of a thread. A thread whose state is unknown counts as one that could free.
//!
//! Where the kernel does not list the threads (no `/proc`, a filter of system calls), only those that have called the driver are
//! checked, and after ten seconds the allocation is refused in any case.

use crate::sys::{own_thread, tasks};
use crate::thread::{self, Thread};

/// Shortest time between two checks, in nanoseconds.
const AGAIN_NS: u64 = 100_000_000;
/// Time after which no thread counts as one that could free if the kernel does not list them, in nanoseconds. The refusal
/// follows two seconds later.
const UNLISTED_NS: u64 = 8_000_000_000;

/// The result of the last check.
#[derive(Default)]
pub struct Stuck {
    looked_ns: u64,
    /// The time since which the kernel has not listed the threads.
    unlisted_ns: Option<u64>,
    is_stuck: bool,
}

impl Stuck {
    /// Returns true if no thread except the calling one could free memory, as of at most 0.1 s ago.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.looked_ns) >= AGAIN_NS {
            self.looked_ns = now_ns;
            self.is_stuck = self.no_other_could_free(now_ns);
        }
        self.is_stuck
    }

    fn no_other_could_free(&mut self, now_ns: u64) -> bool {
        let me = own_thread::id();
        let known: Vec<&Thread> = thread::all().filter(|thread| thread.is_in_use()).collect();
        let (mut am_listed, mut one_could) = (false, false);
        let listed = tasks::all(|tid| {
            am_listed |= tid == me;
            if !one_could && tid != me {
                let record = known.iter().find(|thread| thread.tid() == tid);
                one_could = could_free(tid, record.copied());
            }
        });
        // If the calling thread is not listed, the numbers belong to another namespace.
        if listed.is_some() && am_listed {
            self.unlisted_ns = None;
            return !one_could;
        }
        let since = *self.unlisted_ns.get_or_insert(now_ns);
        let mut others = known.into_iter().filter(|thread| thread.tid() != me);
        now_ns.saturating_sub(since) >= UNLISTED_NS
            || !others.any(|thread| could_free(thread.tid(), Some(thread)))
    }
}

fn could_free(tid: u32, record: Option<&Thread>) -> bool {
    match record {
        Some(thread) if thread.is_ours() || thread.waits_for_quota() => false,
        Some(thread) if !thread.is_the_drivers() => {
            thread.is_inside_anything() || !tasks::waits_for_a_thread(tid)
        }
        _ => tasks::is_running(tid),
    }
}
