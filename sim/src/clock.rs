//! The world's clock: `CLOCK_MONOTONIC`, which all processes of a host share.
//!
//! The clock is read by a system call, not by libc: under libfaketime libc returns another time, and a process with such a libc
//! would stop a device for all others.

use std::time::Duration;

use rustix::thread::{ClockId, NanosleepRelativeResult};
use rustix::time::{Timespec, clock_gettime};

/// Waits below this yield the processor, because a sleep would take longer.
const SHORT: u64 = 80_000;

/// Returns the current time in nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the microseconds since 1970.
pub fn since_1970_us() -> u64 {
    let time = clock_gettime(rustix::time::ClockId::Realtime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Sleeps until `until`. Returns at once if that time is past, and early if a signal arrives.
pub fn sleep_until(until: u64) {
    let time = timespec(Duration::from_nanos(until));
    // A signal ends the sleep; the caller looks at the clock again.
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &time);
}

/// Sleeps for most of a wait. A wait that is too short for a sleep yields the processor instead.
pub fn nap(now: u64, wait: u64) {
    if wait < SHORT {
        std::thread::yield_now();
    } else {
        sleep_until(now + wait - SHORT / 2);
    }
}

/// Sleeps for `time`, also across signals.
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
