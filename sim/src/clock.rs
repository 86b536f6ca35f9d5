//! The world's clock: `CLOCK_MONOTONIC`, the same for all processes of a host.
//!
//! The kernel's own, past libc: a process whose libc tells another time (libfaketime) would stop a device for all others.

use std::time::Duration;

use rustix::thread::{ClockId, NanosleepRelativeResult};
use rustix::time::{Timespec, clock_gettime};

/// Below this, waiting is yielding: a sleep would be longer.
const SHORT: u64 = 80_000;

/// Now, in nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Microseconds since 1970.
pub fn since_1970_us() -> u64 {
    let time = clock_gettime(rustix::time::ClockId::Realtime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Sleeps until `until`; returns at once when that is past, and early when a signal comes.
pub fn sleep_until(until: u64) {
    let time = timespec(Duration::from_nanos(until));
    // A sleep that a signal ended is over.
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &time);
}

/// Sleeps for most of a wait; what is too short to sleep for is left to the scheduler.
pub fn nap(now: u64, wait: u64) {
    if wait < SHORT {
        std::thread::yield_now();
    } else {
        sleep_until(now + wait - SHORT / 2);
    }
}

/// Sleeps this long.
pub fn sleep(time: Duration) {
    let mut rest = timespec(time);
    while let NanosleepRelativeResult::Interrupted(left) = rustix::thread::nanosleep(&rest) {
        rest = left;
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}
