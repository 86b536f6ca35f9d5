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

use crate::sys::{own_thread, tasks};
use crate::thread::{self, Thread};

/// Shortest time between two checks, in nanoseconds.
const AGAIN_NS: u64 = 100_000_000;

/// The result of the last check.
#[derive(Default)]
pub struct Stuck {
    looked_ns: u64,
    is_stuck: bool,
}

impl Stuck {
    /// Returns true if no thread except the calling one could free memory, as of at most 0.1 s ago.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.looked_ns) >= AGAIN_NS {
            self.looked_ns = now_ns;
            self.is_stuck = no_other_could_free();
        }
        self.is_stuck
    }
}

fn no_other_could_free() -> bool {
    let me = own_thread::id();
    let known: Vec<&Thread> = thread::all().filter(|thread| thread.is_in_use()).collect();
    let mut am_listed = false;
    let none_could = tasks::all(|tid| {
        am_listed |= tid == me;
        let record = known.iter().find(|thread| thread.tid() == tid);
        tid == me || !could_free(tid, record.copied())
    });
    // If the calling thread is not listed, the numbers belong to another namespace.
    none_could == Some(true) && am_listed
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
