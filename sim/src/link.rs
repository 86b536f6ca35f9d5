//! The link between the host and a device: it carries both directions at once, and copies in the same direction follow each
//! other, over all processes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::clock;
use crate::process::Member;

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device to the host.
    Out,
    /// From the host to the device.
    Back,
}

impl Member {
    /// Uses a device's link for this time, after the copies before in the same direction. A copy of a process that is killed
    /// still takes its time.
    pub fn use_link(&self, device: usize, direction: Direction, time: Duration) {
        let free_at = &self.world().layout().links[device][direction as usize];
        sleep_until(book(free_at, clock::now(), time.as_nanos() as u64));
    }
}

/// Books the link for a time from `now` on. Returns the end of that time.
fn book(free_at: &AtomicU64, now: u64, time: u64) -> u64 {
    let end_of = |free_at: u64| free_at.max(now) + time;
    let booked = free_at.fetch_update(Relaxed, Relaxed, |free_at| Some(end_of(free_at)));
    booked.map_or_else(end_of, end_of)
}

fn sleep_until(end: u64) {
    while clock::now() < end {
        clock::sleep_until(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_in_one_direction_follow_each_other_and_a_link_that_was_free_is_used_at_once() {
        let free_at = AtomicU64::new(0);
        assert_eq!(book(&free_at, 1000, 50), 1050);
        assert_eq!(book(&free_at, 1010, 50), 1100);
        assert_eq!(book(&free_at, 2000, 50), 2050);
    }
}
