//! The sentence about processes that found no free slot, and the time for which it is shown.

use shm_layout::MAX_PROCESSES;

use super::units::short_time;

/// Time in nanoseconds for which the sentence is shown after the last refusal.
pub const NEWS_NS: u64 = 600_000_000_000;

/// The processes that found no free slot since the segment was made.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// Number of processes.
    pub count: u64,
    /// Time of the last refusal in nanoseconds.
    pub last_ns: u64,
    /// Number of slots in use now.
    pub slots_used: usize,
}

impl Refused {
    /// Returns the advice that makes room. If a broker serves, separate segments are not advised, because they would hide a
    /// program from all others.
    pub fn remedy(is_brokered: bool) -> &'static str {
        match is_brokered {
            true => "end some programs",
            false => "end some programs, or start some with another GPUSHARE_DIR",
        }
    }

    /// Returns the sentence at `now_ns`, or `None` if there is a free slot again and the last refusal is long ago.
    pub fn sentence(self, now_ns: u64) -> Option<String> {
        let ago = now_ns.saturating_sub(self.last_ns);
        if self.count == 0 || self.slots_used < MAX_PROCESSES && ago >= NEWS_NS {
            return None;
        }
        let ago = short_time(ago);
        Some(match self.count {
            1 => format!(
                "1 program found no free slot of {MAX_PROCESSES}, {ago} ago, and runs uncounted"
            ),
            more => format!(
                "{more} programs found no free slot of {MAX_PROCESSES}, the last {ago} ago, and run uncounted"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    fn said(count: u64, slots_used: usize, ago_ns: u64) -> Option<String> {
        let refused = Refused {
            count,
            last_ns: 50 * MINUTE,
            slots_used,
        };
        refused.sentence(50 * MINUTE + ago_ns)
    }

    #[test]
    fn a_refusal_is_said_for_ten_minutes_with_its_age() {
        assert_eq!(
            said(3, 1, 2 * MINUTE).as_deref(),
            Some("3 programs found no free slot of 256, the last 2m00s ago, and run uncounted")
        );
        assert_eq!(
            said(1, 1, 10 * MINUTE - 1).as_deref(),
            Some("1 program found no free slot of 256, 9m59s ago, and runs uncounted")
        );
        assert_eq!(said(3, MAX_PROCESSES - 1, 10 * MINUTE), None);
        assert_eq!(said(0, MAX_PROCESSES, 0), None);
    }

    #[test]
    fn a_refusal_is_said_as_long_as_no_slot_is_free() {
        assert_eq!(
            said(2, MAX_PROCESSES, 180 * MINUTE).as_deref(),
            Some("2 programs found no free slot of 256, the last 3h00m ago, and run uncounted")
        );
    }
}
