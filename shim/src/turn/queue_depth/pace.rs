//! The pace of the device: how long one submission takes, measured by the ends of work that the clock saw.

/// Submissions admitted while the duration of one is unknown. The end of the second, seen while the third waits,
/// gives the duration. With more, a program that synchronises behind every few long kernels would never be seen
/// waiting, and its duration would stay unknown.
const UNKNOWN: u64 = 2;
/// An end is seen late, by up to the time between two looks. So a duration is learned from submissions that took at least this long
/// together, in nanoseconds, and little by little from the last ones of a queue.
const LEAST_SPAN: u64 = 500_000;
/// Most submissions that one event covers. It also covers at most a quarter of the time allowed.
const MOST_IN_ONE: u64 = 64;

/// The duration of one submission, measured by the clock.
#[derive(Default)]
pub(super) struct Pace {
    /// Shortest recent duration in nanoseconds, on average over a span; 0 while unknown.
    pub(super) cost_ns: u64,
    /// That one may be much too long: it was learned from a queue that may have waited for the device.
    is_loose: bool,
    /// Moving average of the duration in nanoseconds. While the process has the device alone, the average predicts
    /// the end of the queue better than the shortest duration.
    pub(super) mean_ns: u64,
    /// Longest recent duration in nanoseconds; 0 while unknown.
    pub(super) longest_ns: u64,
    /// The time that a submission takes alone, in nanoseconds; 0 where that is not measured.
    pub(super) lone_ns: u64,
    /// The process has the device alone, in turns.
    pub(super) alone: bool,
    /// The time at which the oldest event was last seen pending, if it was.
    pending_ns: Option<u64>,
    /// The submissions that the next duration is learned from.
    span: Option<Span>,
    /// The time of the last event's end, if it had been seen pending.
    done_ns: Option<u64>,
    /// The time at which work was last seen done, or at which the queue began.
    pub(super) progress_ns: u64,
}

/// Submissions whose ends were seen one after the other.
struct Span {
    /// The device began with them at the earliest at this time, in nanoseconds.
    earliest_ns: u64,
    /// And at the latest at this one; `None` if others may have had the device first.
    latest_ns: Option<u64>,
    count: u64,
}

impl Pace {
    /// Returns the duration that is expected of one submission, in nanoseconds; 0 while unknown. Beside others the
    /// average includes the time that they used the device.
    fn each_ns(&self) -> u64 {
        match (self.alone, self.lone_ns) {
            (true, _) => self.mean_ns.max(self.cost_ns),
            (false, 0) => self.cost_ns,
            (false, known) => known,
        }
    }

    /// Estimates the time until the device has done `queued` submissions, in nanoseconds.
    pub(super) fn left(&self, queued: u64, depth_ns: u64, now_ns: u64) -> u64 {
        let cost = match self.each_ns() {
            0 => depth_ns / UNKNOWN,
            known => known,
        };
        let elapsed = now_ns.saturating_sub(self.progress_ns);
        queued.saturating_mul(cost) - elapsed.min(cost).min(queued.saturating_mul(cost))
    }

    /// Returns the longest time that the queue may still take, as far as durations are known. `first` is the number of
    /// submissions behind the oldest event. A program may submit short kernels and long graphs, so the average says
    /// little about a few of them. Returns `None` while no duration is known.
    pub(super) fn rest(&self, queued: u64, first: u32, now_ns: u64) -> Option<u64> {
        let each = self.longest_ns;
        let elapsed = now_ns.saturating_sub(self.progress_ns);
        let running = each.saturating_mul(u64::from(first));
        (each != 0).then(|| {
            queued
                .saturating_mul(each)
                .saturating_sub(elapsed.min(running))
        })
    }

    /// Starts a new queue, whose first submission was made between `earliest_ns` and `now_ns`.
    pub(super) fn begin(&mut self, earliest_ns: u64, now_ns: u64) {
        self.progress_ns = now_ns;
        self.done_ns = None;
        self.pending_ns = None;
        // The first of a queue may have waited for the device: they are only known to take no longer.
        self.span = Some(Span::begun(earliest_ns, None));
    }

    /// Records that the oldest event was seen pending.
    pub(super) fn pending(&mut self, now_ns: u64) {
        self.pending_ns = Some(now_ns);
    }

    /// Records that `all` submissions were seen done, `first` of them behind the oldest event. With `is_empty` nothing
    /// else is queued.
    pub(super) fn done(&mut self, first: u32, all: u32, is_empty: bool, now_ns: u64) {
        let pending = self.pending_ns.take();
        self.learn(pending, all, is_empty, now_ns);
        if let (Some(_), Some(before)) = (pending, self.done_ns) {
            let took = now_ns.saturating_sub(before);
            let average = took / u64::from(all.max(1));
            self.mean_ns = match self.mean_ns {
                0 => average,
                known => (known * 7 + average) / 8,
            };
            let sample = took / u64::from(first.max(1));
            self.longest_ns = sample.max(self.longest_ns - self.longest_ns / 64);
        }
        self.done_ns = pending.map(|_| now_ns);
        self.progress_ns = now_ns;
    }

    /// Learns the duration from `all` more submissions. The device took for them at most the time since the one before them was
    /// last seen pending, and at least the time from when that one was seen done until they were last seen pending. Other processes may
    /// have used it meanwhile, so a shorter duration counts at once, and a longer one little by little.
    fn learn(&mut self, pending: Option<u64>, all: u32, is_empty: bool, now_ns: u64) {
        if let Some(span) = &mut self.span {
            span.count += u64::from(all);
            let took = now_ns.saturating_sub(span.earliest_ns);
            let is_short = took < LEAST_SPAN;
            if is_short && !is_empty {
                return;
            }
            let is_loose = span.latest_ns.is_none();
            let least = pending.zip(span.latest_ns);
            let least = least.map_or(0, |(pending, latest)| pending.saturating_sub(latest));
            let [least, most] = [least, took].map(|time| time / span.count.max(1));
            self.cost_ns = match self.cost_ns {
                // The next ones tell more.
                0 if is_loose && !is_empty => 0,
                0 => {
                    self.is_loose = is_loose;
                    most.max(1)
                }
                // A few short kernels, which say little of the others.
                known if is_short && !self.is_loose => known.min(most.max(known - known / 8)),
                known if most <= known => most.max(1),
                known => least.clamp(known, known + known / 64 + 1),
            };
            self.is_loose &= is_loose || is_short;
        }
        self.span = pending.map(|pending| Span::begun(pending, Some(now_ns)));
    }

    /// Returns how many submissions one thread may make before the next check: as many as fill the time allowed, and as
    /// one event covers.
    pub(super) fn allotment(&self, queued: u64, depth_ns: u64, now_ns: u64) -> u32 {
        let left = self.left(queued, depth_ns, now_ns);
        let fit = depth_ns.saturating_sub(left).checked_div(self.each_ns());
        fit.map_or(1, |fit| fit.clamp(1, self.in_one(depth_ns)) as u32)
    }

    /// Returns the number of submissions that one event covers.
    pub(super) fn in_one(&self, depth_ns: u64) -> u64 {
        match self.each_ns() {
            0 => 1,
            cost => (depth_ns / 4 / cost).clamp(1, MOST_IN_ONE),
        }
    }
}

impl Span {
    fn begun(earliest_ns: u64, latest_ns: Option<u64>) -> Self {
        Self {
            earliest_ns,
            latest_ns,
            count: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    const MS: u64 = 1_000_000;

    /// Sees the oldest event pending, and `count` submissions done a little later.
    fn watched(pace: &mut Pace, count: u32, now_ns: u64) {
        pace.pending(now_ns - MS / 100);
        pace.done(count, count, false, now_ns);
    }

    fn is_about(pace: &Pace, ns: u64) -> bool {
        pace.cost_ns.abs_diff(ns) <= ns / 100
    }

    #[test]
    fn what_one_takes_is_learned_from_the_time_between_two_ends_that_were_watched() {
        let mut pace = Pace::default();
        watched(&mut pace, 4, 10 * MS);
        assert_eq!(pace.cost_ns, 0, "when the first began is not known");
        watched(&mut pace, 4, 14 * MS);
        assert!(is_about(&pace, MS));
        let known = pace.cost_ns;
        pace.done(4, 4, false, 100 * MS);
        assert_eq!(pace.cost_ns, known, "its end was not seen");
        watched(&mut pace, 4, 120 * MS);
        assert_eq!(pace.cost_ns, known, "nor when this one began");
        watched(&mut pace, 4, 140 * MS);
        assert_eq!(
            pace.cost_ns,
            known + known / 64 + 1,
            "a longer one counts for little: others had the device meanwhile"
        );
        watched(&mut pace, 4, 142 * MS);
        assert!(is_about(&pace, MS / 2), "a shorter one at once");
    }

    #[test]
    fn a_few_short_ones_alone_say_little_of_the_others() {
        let mut pace = Pace::default();
        watched(&mut pace, 10, 10 * MS);
        watched(&mut pace, 10, 20 * MS);
        assert!(is_about(&pace, MS));
        pace.cost_ns = MS;
        let short = |pace: &mut Pace| {
            pace.begin(20 * MS, 20 * MS);
            pace.done(2, 2, true, 20 * MS + MS / 5);
        };
        short(&mut pace);
        assert_eq!(pace.cost_ns, MS - MS / 8);
        (0..40).for_each(|_| short(&mut pace));
        assert_eq!(pace.cost_ns, MS / 10);
    }

    #[test]
    fn the_first_queue_may_have_waited_for_the_device_and_a_shorter_one_counts_at_once() {
        let mut pace = Pace::default();
        for (at, took) in [(100, 20 * MS), (200, MS / 5), (300, MS / 10)] {
            pace.begin(at * MS, at * MS);
            pace.done(1, 1, true, at * MS + took);
            assert_eq!(pace.cost_ns, took);
        }
    }

    #[test]
    fn an_end_that_is_seen_late_makes_no_submission_shorter() {
        let mut pace = Pace::default();
        let us = MS / 1000;
        // One takes 100 us. Every other end is seen late, shortly before the next.
        for at in 1..40 {
            let late = if at % 2 == 0 { 95 * us } else { 0 };
            let ended = at * 100 * us;
            pace.pending(ended - us);
            pace.done(1, 1, false, ended + late);
            assert!(pace.cost_ns == 0 || pace.cost_ns >= 100 * us);
        }
        assert!(pace.cost_ns <= 125 * us, "{}", pace.cost_ns);
    }

    #[test]
    fn how_long_the_first_of_a_queue_take_says_only_that_they_take_no_longer() {
        let mut pace = Pace::default();
        for (at, took) in [(100, MS / 25), (200, 20 * MS)] {
            pace.begin(at * MS, at * MS);
            pace.pending(at * MS + took - 1);
            pace.done(1, 1, true, at * MS + took);
            assert_eq!(pace.cost_ns, MS / 25, "at {at} ms");
        }
    }

    #[test]
    fn a_queue_that_is_done_at_each_look_is_known_not_to_take_longer() {
        let mut pace = Pace::default();
        for (began, all) in [(0, 2), (100, 4), (200, 8)] {
            pace.begin(began * MS, began * MS);
            pace.pending(began * MS);
            pace.done(1, all, true, (began + 1) * MS);
            assert_eq!(pace.cost_ns, MS / u64::from(all));
        }
        pace.begin(300 * MS, 300 * MS);
        pace.pending(300 * MS);
        pace.done(1, 1, true, 301 * MS);
        assert_eq!(pace.cost_ns, MS / 8, "that it took longer is not known");
        pace.begin(400 * MS, 400 * MS);
        pace.done(1, 1, false, 400 * MS + 5);
        assert_eq!(
            pace.cost_ns,
            MS / 8,
            "a first short one says nothing of the rest"
        );
    }

    #[test]
    fn the_time_left_counts_the_running_one_for_what_is_left_of_it_and_not_less() {
        let pace = Pace {
            cost_ns: 5 * MS,
            progress_ns: 100 * MS,
            ..Pace::default()
        };
        assert_eq!(pace.left(1, 2 * MS, 100 * MS), 5 * MS);
        assert_eq!(pace.left(1, 2 * MS, 104 * MS), MS);
        assert_eq!(
            pace.left(3, 2 * MS, 200 * MS),
            10 * MS,
            "two stand behind it"
        );
        assert_eq!(pace.left(0, 2 * MS, 200 * MS), 0);
    }

    #[test]
    fn the_rest_is_told_by_the_longest_and_not_at_all_while_none_is_known() {
        let mut pace = Pace {
            cost_ns: 1000,
            ..Pace::default()
        };
        assert_eq!(pace.rest(1, 1, MS), None);
        for end in [10, 11, 13, 14, 16] {
            watched(&mut pace, 1, end * MS);
        }
        let rest = |now_ms| pace.rest(3, 1, now_ms * MS).expect("known");
        assert_eq!(rest(16), 6 * MS, "each may take 2 ms");
        assert!(rest(17) < rest(16));
        assert_eq!(rest(100), 4 * MS, "the two behind it have not begun");
    }

    #[test]
    fn while_nothing_is_known_a_few_go_in() {
        let pace = Pace::default();
        assert!(pace.left(2, 2 * MS, 0) <= 2 * MS);
        assert!(pace.left(4, 2 * MS, MS) > 2 * MS);
        assert_eq!(pace.in_one(2 * MS), 1);
    }

    #[test]
    fn an_event_stands_for_a_quarter_of_what_is_allowed() {
        let of = |cost_ns| {
            Pace {
                cost_ns,
                ..Pace::default()
            }
            .in_one(2 * MS)
        };
        assert_eq!(of(MS / 20), 10);
        assert_eq!(of(10 * MS), 1);
        assert_eq!(of(100), 64);
    }

    #[test]
    fn an_allotment_fills_what_is_allowed_and_one_event_covers_it() {
        let of = |cost_ns, queued| {
            let pace = Pace {
                cost_ns,
                ..Pace::default()
            };
            pace.allotment(queued, 2 * MS, 0)
        };
        assert_eq!(of(0, 0), 1, "while nothing is known");
        assert_eq!(of(MS / 20, 0), 10);
        assert_eq!(of(MS / 20, 36), 4);
        assert_eq!(of(MS / 20, 40), 1);
        assert_eq!(of(10 * MS, 0), 1);
    }
}
