//! Waiting for another process by polling, for conditions without a notification.

use std::time::{Duration, Instant};

/// Interval between two checks.
const PACE: Duration = Duration::from_millis(2);

/// Checks a condition repeatedly until it is true, for at most `limit`. Returns its last value.
pub fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(PACE);
    }
    true
}
