//! Waiting for what another process does, where nothing tells when it has.

use std::time::{Duration, Instant};

/// Between two looks.
const PACE: Duration = Duration::from_millis(2);

/// Looks again and again whether it holds, at most for so long; whether it does.
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
