//! The segments' clock: CLOCK_BOOTTIME in nanoseconds, the same for every process of the host.
//!
//! A process in a time namespace sees that clock shifted; [`now`] takes the shift out, so that times in the segment
//! compare across containers.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use rustix::time::{ClockId, clock_gettime};

use crate::os::procfs;

/// Nanoseconds since boot, suspended time included.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let ns = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(ns - i128::from(shift())).unwrap_or(0)
}

/// Returns the offset that this process's time namespace adds to the clock. It is cached without a lock: to read it twice does
/// no harm, and a child that is forked while another thread reads it does not wait.
fn shift() -> i64 {
    const UNKNOWN: i64 = i64::MIN;
    static SHIFT: AtomicI64 = AtomicI64::new(UNKNOWN);
    let known = SHIFT.load(Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let read = procfs::record("/proc/self/timens_offsets")
        .ok()
        .and_then(|text| parse_shift(&text))
        .unwrap_or(0);
    SHIFT.store(read, Relaxed);
    read
}

fn parse_shift(text: &str) -> Option<i64> {
    let mut words = text
        .lines()
        .find(|line| line.starts_with("boottime"))?
        .split_whitespace()
        .skip(1);
    let seconds: i64 = words.next()?.parse().ok()?;
    let ns: i64 = words.next()?.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        let text = "monotonic           0         0\nboottime        -3600       250\n";
        assert_eq!(super::parse_shift(text), Some(-3_600_000_000_000 + 250));
        assert_eq!(super::parse_shift("boottime x y"), None);
    }
}
