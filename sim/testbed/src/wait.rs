//! Waiting for a condition that has no event.

use std::time::{Duration, Instant};

/// Polls until `reached` is true.
///
/// # Panics
///
/// With `what` after `limit`. The limit is a watchdog: choose it so large that a loaded machine does not reach it.
pub fn eventually(what: &str, limit: Duration, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    while !reached() {
        assert!(
            start.elapsed() < limit,
            "waited {limit:?} without seeing that {what}"
        );
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_the_state_is_reached() {
        let mut looks = 0;
        eventually("three looks", Duration::from_secs(30), || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "without seeing that pigs fly")]
    fn waiting_in_vain_says_for_what() {
        eventually("pigs fly", Duration::from_millis(5), || false);
    }
}
