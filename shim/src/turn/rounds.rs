//! The rounds of a process between two waits for the device, and how much work of others it tolerates ahead of its own.
//!
//! ```text
//!   wait ends      submissions            wait begins      wait ends
//!      │◀────── the process's own time ───────▶│◀─ device ─▶│
//! ```
//!
//! Work that others have queued ahead delays the process only where it waits for the device. A process whose processor
//! takes most of a round loses at most that much at the end of the round, so a sixteenth of a round is hardly noticed.
//! A process that waits for long is delayed by all of it, again and again, and tolerates nothing. So does one that runs
//! far ahead of the device and rarely waits: its wait, when it comes, is long. Kernels that fit between two of its
//! submissions delay it by at most their own length.

use shm_layout::Tolerance;

/// Part of a round by which others may delay the process.
const PART: u64 = 16;
/// Part of a round that the process may wait in all, by its own work and by that of others, and the longest such wait, in
/// microseconds.
const WAIT_PART: u64 = 8;
const LONGEST_WAIT_US: u64 = 2_000;
/// The measured time from which older rounds count for half, in microseconds.
const MEMORY_US: u64 = 100_000;

/// The recent rounds of a process on one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    /// End of the last wait, in nanoseconds, and the number of submissions then.
    ended_ns: u64,
    submitted: u64,
    /// Sums in microseconds: the rounds, their squares, the waits in them; and the submissions.
    total_us: u64,
    squares: u64,
    waited_us: u64,
    submissions: u64,
}

impl Rounds {
    /// Begins a round: the process has submitted after it was idle.
    pub fn begin(&mut self, now_ns: u64, submitted: u64) {
        self.ended_ns = now_ns;
        self.submitted = submitted;
    }

    /// Ends a round: the process has waited for the device from `began_ns` on.
    pub fn end(&mut self, began_ns: u64, now_ns: u64, submitted: u64) {
        let round = now_ns.saturating_sub(self.ended_ns) / 1000;
        self.total_us += round;
        self.squares += round.saturating_mul(round);
        self.waited_us += now_ns.saturating_sub(began_ns.max(self.ended_ns)) / 1000;
        self.submissions += submitted.saturating_sub(self.submitted);
        if self.total_us > MEMORY_US {
            for sum in [
                &mut self.total_us,
                &mut self.squares,
                &mut self.waited_us,
                &mut self.submissions,
            ] {
                *sum /= 2;
            }
        }
        self.begin(now_ns, submitted);
    }

    /// Returns how much work of others the process tolerates.
    pub fn tolerance(&self) -> Tolerance {
        let own_us = self.total_us.saturating_sub(self.waited_us);
        if own_us <= self.waited_us {
            return Tolerance::default();
        }
        // Weighted by their length: several waits in a row are one wait and do not make rounds of their own.
        let round = self.squares / self.total_us.max(1);
        let wait = round.saturating_mul(self.waited_us) / self.total_us.max(1);
        let left = (round / WAIT_PART)
            .min(LONGEST_WAIT_US)
            .saturating_sub(wait);
        let word = |us: u64| u32::try_from(us).unwrap_or(u32::MAX);
        Tolerance {
            together_us: word(left.min(round / PART)),
            gap_us: word(own_us / self.submissions.max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes equal rounds of this many submissions: the process's own time, and the time that it waits.
    fn of(own_us: u64, waits_us: u64, submissions: u64) -> Tolerance {
        let mut rounds = Rounds::default();
        rounds.begin(1_000_000, 0);
        let mut now = 1_000_000;
        for round in 1..2000 {
            let began = now + own_us * 1000;
            now = began + waits_us * 1000;
            rounds.end(began, now, round * submissions);
        }
        rounds.tolerance()
    }

    #[test]
    fn a_program_that_is_bound_by_its_processor_tolerates_a_sixteenth_of_a_round() {
        let decode = of(9_600, 400, 1000);
        assert_eq!(decode.together_us, 625);
        assert!(decode.gap_us < 20, "{decode:?}");
    }

    #[test]
    fn short_requests_leave_gaps_that_kernels_fit_into() {
        let requests = of(280, 20, 1);
        assert!((270..290).contains(&requests.gap_us), "{requests:?}");
    }

    #[test]
    fn a_program_that_waits_for_the_device_tolerates_nothing() {
        assert_eq!(of(1_000, 9_000, 2), Tolerance::default());
        assert_eq!(Rounds::default().tolerance(), Tolerance::default());
    }

    #[test]
    fn a_program_that_runs_far_ahead_of_the_device_tolerates_nothing_at_its_rare_waits() {
        assert_eq!(of(900_000, 100_000, 10_000).together_us, 0);
    }

    #[test]
    fn several_waits_in_a_row_make_no_short_rounds() {
        let mut rounds = Rounds::default();
        let mut now = 0;
        for _ in 0..100 {
            for own_us in [9_900, 5, 5] {
                now += own_us * 1000;
                rounds.end(now, now + 30_000, 0);
                now += 30_000;
            }
        }
        assert!(rounds.tolerance().together_us > 600);
    }
}
