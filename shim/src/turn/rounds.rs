//! The times between a process's submissions and its waits for the device: how much work of others it tolerates ahead of its
//! own, and how soon it submits again.
//!
//! A round is the time between two waits.
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
//!
//! A process that is never idle, as a model that writes one token after the other, would hold the others back for ever, while
//! its processor leaves most of the device empty. It needs the device only while it waits: until then it falls behind
//! without harm, because its submissions pile up on the device meanwhile. So it tolerates everything while it computes.
//!
//! A server that copies its input and then launches does not use the device for a short gap. If the device is given
//! away in that gap, the server loses the time until it gets the device back. So `idle=auto` keeps the device for
//! twice the usual short gap if short gaps are common, and for 0.1 ms if they are not.

use shm_layout::{
    Tolerance,
    lock::order::{KEPT_NS, LONG_GAP_NS},
};

/// Part of a round by which others may delay the process.
const PART: u64 = 16;
/// Part of a round that the process may wait in all, by its own work and by that of others, and the longest such wait, in
/// microseconds.
const WAIT_PART: u64 = 8;
const LONGEST_WAIT_US: u64 = 2_000;
/// A process tolerates everything while it computes if it is active for at least so many times as long as it is idle. Its waits
/// then include work of others. It does so until it waits for half of a round, or for longer than this, in microseconds, or is
/// idle for as long as it is active.
const ACTIVE_PER_IDLE: u64 = 3;
const LONGEST_SHARED_WAIT_US: u64 = 8_000;
/// The tolerance of such a process while it waits. An LLM beside an embedding and a training on an H200 took 16.7 to 21.3 ms a token by
/// time slicing. With nothing here and with this it took 15.8 and 16.4 ms, and the others did 91 and 95 % as much as by time slicing.
pub const WAITING: Tolerance = Tolerance {
    together_us: 750,
    gap_us: 250,
};
/// The measured time from which older rounds count for half, in microseconds.
const MEMORY_US: u64 = 100_000;
/// A longer round counts as one of this length, in microseconds: the process may have been stopped.
const LONGEST_US: u64 = 10_000_000;
/// A process that does not wait for as many of its rounds, and this time, waits in a way that is not seen, in microseconds.
const MANY_ROUNDS: u64 = 2;
const UNSEEN_US: u64 = 20_000;

/// The recent rounds of a process on one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    /// End of the last wait or of the idle time after it, in nanoseconds, and the number of submissions then.
    ended_ns: u64,
    submitted: u64,
    /// End of the last wait, in nanoseconds.
    waited_ns: u64,
    /// Sums in microseconds: the rounds, their squares, the waits in them; and the submissions.
    total_us: u64,
    squares: u64,
    waited_us: u64,
    submissions: u64,
    /// The time that the process was idle between its rounds, in microseconds.
    idle_us: u64,
    /// While the process computes it tolerates everything.
    tolerates_all: bool,
}

impl Rounds {
    /// Begins a round: the process has submitted after it was idle.
    pub fn begin(&mut self, now_ns: u64, submitted: u64) {
        if self.ended_ns != 0 {
            self.idle_us += now_ns.saturating_sub(self.ended_ns) / 1000;
        }
        self.start(now_ns, submitted);
    }

    fn start(&mut self, now_ns: u64, submitted: u64) {
        self.ended_ns = now_ns;
        self.submitted = submitted;
    }

    /// Ends a round: the process has waited for the device from `began_ns` on.
    pub fn end(&mut self, began_ns: u64, now_ns: u64, submitted: u64) {
        self.waited_ns = now_ns;
        let round = (now_ns.saturating_sub(self.ended_ns) / 1000).min(LONGEST_US);
        self.total_us += round;
        self.squares += round.saturating_mul(round);
        self.waited_us += round.min(now_ns.saturating_sub(began_ns.max(self.ended_ns)) / 1000);
        self.submissions += submitted.saturating_sub(self.submitted);
        if self.total_us > MEMORY_US {
            for sum in [
                &mut self.total_us,
                &mut self.squares,
                &mut self.waited_us,
                &mut self.submissions,
                &mut self.idle_us,
            ] {
                *sum /= 2;
            }
            self.tolerates_all = self.is_bound_by_its_processor();
        }
        self.start(now_ns, submitted);
    }

    /// Returns true if the process is active nearly all the time and hardly waits for the device.
    fn is_bound_by_its_processor(&self) -> bool {
        let (round, wait) = self.usual();
        let (most, active) = match self.tolerates_all {
            false => ((round / 4).min(LONGEST_WAIT_US), ACTIVE_PER_IDLE),
            true => ((round / 2).min(LONGEST_SHARED_WAIT_US), 1),
        };
        wait <= most && self.total_us >= self.idle_us.saturating_mul(active)
    }

    /// Returns the usual round and the wait in it, in microseconds. Weighted by their length: several waits in a row are one
    /// wait and do not make rounds of their own.
    fn usual(&self) -> (u64, u64) {
        let total = self.total_us.max(1);
        let round = self.squares / total;
        (round, round.saturating_mul(self.waited_us) / total)
    }

    /// Returns true if the process has not waited for much longer than usual. It may wait by queries, or by looking at memory that a
    /// kernel writes.
    pub fn are_over(&self, now_ns: u64) -> bool {
        let (round, _) = self.usual();
        now_ns.saturating_sub(self.waited_ns) / 1000 > MANY_ROUNDS * round + UNSEEN_US
    }

    /// Returns how much work of others the process tolerates until it waits.
    pub fn tolerance(&self) -> Tolerance {
        if self.tolerates_all {
            let (round, wait) = self.usual();
            return Tolerance::all(round.saturating_sub(wait) * 1000, self.ended_ns);
        }
        let own_us = self.total_us.saturating_sub(self.waited_us);
        if own_us <= self.waited_us {
            return Tolerance::default();
        }
        let (round, wait) = self.usual();
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

/// Time without a submission or a synchronisation after which a process counts as idle, in nanoseconds.
pub const UNSYNCHRONISED: u64 = 1_000_000;

/// The recent gaps of a process between a synchronisation and the next submission.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdleEstimate {
    /// Moving average of the short gaps, in nanoseconds.
    short_ns: u64,
    /// Share of the recent gaps that were short, in units of 1 / [`MANY`].
    shorts: u64,
}

/// The value of `shorts` that stands for all gaps.
const MANY: u64 = 1024;

impl IdleEstimate {
    /// Adds a gap of `ns` nanoseconds.
    pub fn learn(&mut self, ns: u64) {
        let is_short = ns < LONG_GAP_NS;
        self.shorts -= self.shorts / 8;
        if is_short {
            self.shorts += MANY / 8;
            self.short_ns = match self.short_ns {
                0 => ns,
                known => (7 * known + ns) / 8,
            }
            .max(1);
        }
    }

    /// Returns true if at least a quarter of the recent gaps were short.
    pub fn is_short(&self) -> bool {
        self.shorts >= MANY / 4
    }

    /// Returns how long the device is kept after a synchronisation, in nanoseconds.
    pub fn keep(&self) -> u64 {
        if !self.is_short() {
            return KEPT_NS;
        }
        (2 * self.short_ns).clamp(KEPT_NS, LONG_GAP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes equal rounds of this many submissions: the process's own time, and the time that it waits. It is idle as long
    /// before each.
    fn of(own_us: u64, waits_us: u64, submissions: u64) -> Tolerance {
        let mut rounds = Rounds::default();
        go_on(
            &mut rounds,
            own_us + waits_us,
            [own_us, waits_us],
            submissions,
        );
        rounds.tolerance()
    }

    fn go_on(rounds: &mut Rounds, idle_us: u64, [own_us, waits_us]: [u64; 2], submissions: u64) {
        let mut now = rounds.ended_ns.max(1);
        for _ in 1..2000 {
            if idle_us != 0 || now == 1 {
                now += idle_us * 1000;
                rounds.begin(now, rounds.submitted);
            }
            let began = now + own_us * 1000;
            now = began + waits_us * 1000;
            rounds.end(began, now, rounds.submitted + submissions);
        }
    }

    #[test]
    fn a_program_that_is_never_idle_and_hardly_waits_tolerates_everything_until_it_waits_for_long()
    {
        let mut rounds = Rounds::default();
        let mut then = |idle_us, round| {
            go_on(&mut rounds, idle_us, round, 1000);
            rounds.tolerance()
        };
        assert!(then(0, [9_600, 400]).is_all());
        assert!(
            then(0, [9_600, 3_000]).is_all(),
            "work of others is in its waits"
        );
        assert_eq!(then(0, [4_000, 8_000]), Tolerance::default());
        assert!(
            !then(0, [9_600, 3_500]).is_all(),
            "that may be its own work"
        );
        assert!(then(0, [9_600, 400]).is_all());
        let requests = then(20_000, [9_600, 400]);
        assert!(
            !requests.is_all(),
            "it leaves the device to others between them"
        );
    }

    #[test]
    fn rounds_are_over_if_there_is_no_wait_for_much_longer_than_usual() {
        let mut rounds = Rounds::default();
        go_on(&mut rounds, 0, [9_600, 400], 1000);
        let waited_ns = rounds.waited_ns;
        let after = |ms: u64| waited_ns + ms * 1_000_000;
        assert!(!rounds.are_over(after(39)));
        assert!(rounds.are_over(after(41)));
        rounds.begin(after(1_000), 0);
        assert!(rounds.are_over(after(1_000)), "to be idle is no wait");
    }

    #[test]
    fn a_process_that_was_stopped_for_a_day_has_no_round_of_a_day() {
        let mut rounds = Rounds::default();
        let day_ns = 86_400_000_000_000;
        (1..4).for_each(|day| rounds.end(day * day_ns - 1, day * day_ns, 1));
        assert!(rounds.usual().0 <= LONGEST_US);
    }

    #[test]
    fn a_program_that_fills_the_device_and_rarely_waits_tolerates_nothing() {
        let mut rounds = Rounds::default();
        go_on(&mut rounds, 0, [900_000, 100_000], 10_000);
        assert_eq!(rounds.tolerance().together_us, 0);
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

    const US: u64 = 1000;

    fn kept_after(times: impl IntoIterator<Item = u64>) -> u64 {
        let mut idle = IdleEstimate::default();
        times.into_iter().for_each(|ns| idle.learn(ns));
        idle.keep()
    }

    #[test]
    fn a_server_that_copies_and_then_launches_keeps_the_device_for_that_moment() {
        let turns = (0..40).map(|at| if at % 2 == 0 { 150 * US } else { 20_000 * US });
        assert_eq!(kept_after(turns), 300 * US);
    }

    #[test]
    fn one_short_gap_among_long_ones_keeps_nothing() {
        let turns = (0..40).map(|at| if at % 20 == 10 { 900 * US } else { 20_000 * US });
        assert_eq!(kept_after(turns), KEPT_NS);
    }

    #[test]
    fn nothing_is_kept_for_long() {
        assert_eq!(kept_after([900 * US; 20]), LONG_GAP_NS);
        assert_eq!(kept_after([]), KEPT_NS);
    }
}
