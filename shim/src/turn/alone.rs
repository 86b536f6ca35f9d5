//! The time that a submission of a process takes while the process has the device to itself.
//!
//! Clients of MPS share the device kernel by kernel, and the time until a kernel's end says more about the others than about
//! the process. So the others hold back for a moment, and the ends of the submissions are watched, or how long the application
//! waits for them. One measurement covers a few milliseconds of a program whose kernels differ, so several count together.

/// Time to watch, and the longest time until that much was seen, in nanoseconds. It includes the time in which the others finish
/// what they had queued.
const WATCHED: u64 = 8_000_000;
const LONGEST: u64 = 40_000_000;
/// The longest time where no other process is active, and so none has to hold back.
const LONGEST_WITHOUT_COMPANY: u64 = 10 * LONGEST;
/// Number of measurements that follow each other at once, the number after which they are rare, and the pauses between them then,
/// later, and when they are rare: the others hold back for each.
const FIRST: u32 = 8;
const MANY: u32 = 16;
const SOON: u64 = 20_000_000;
const LATER: u64 = 1_000_000_000;
const RARELY: u64 = 4_000_000_000;
/// The longest pause after measurements in which nothing was seen, one after the other: the device is faster than the program, or
/// the others took all of the time to finish what they had queued.
const FRUITLESS: u64 = 8_000_000_000;
/// Least time that must have been watched in all, in nanoseconds. A few kernels of a program that is loading say nothing.
const ENOUGH: u64 = 2_000_000;
/// Watched time from which older measurements count for half, in nanoseconds.
const MEMORY: u64 = 128_000_000;

/// A number for the kernels, copies and memsets, and one for the graphs. A graph may take a thousand times as long as a kernel.
pub type OfKinds = [u64; 2];

/// Time that was watched, in nanoseconds, and the submissions of a kind that took it.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    watched_ns: u64,
    ended: u64,
}

impl Mean {
    fn add(&mut self, other: Self) {
        self.watched_ns += other.watched_ns;
        self.ended += other.ended;
    }

    fn each_ns(self) -> Option<u64> {
        self.watched_ns.checked_div(self.ended)
    }
}

/// Returns the time and the submissions of both kinds.
fn of_both([kernels, graphs]: [Mean; 2]) -> Mean {
    let mut both = kernels;
    both.add(graphs);
    both
}

/// The measurements of a process on a device.
#[derive(Debug, Default)]
pub struct Alone {
    means: [Mean; 2],
    /// The measurement under way.
    window: Option<Window>,
    /// Measurements so far that had company or in which something was seen, the last ones in which nothing was seen, and the time
    /// of the next one.
    count: u32,
    fruitless: u32,
    next_ns: u64,
    /// The last measurement had no company.
    had_no_company: bool,
    /// The last measurement differed much from those before.
    is_doubtful: bool,
    /// The last time at which the next step was asked for, while the process was active.
    polled_ns: u64,
}

#[derive(Debug, Default)]
struct Window {
    began_ns: u64,
    /// Others hold back for it.
    has_company: bool,
    /// The others have nothing queued any more.
    is_alone: bool,
    /// The last end that was seen while more was queued.
    from_ns: Option<u64>,
    /// The time at which the present queue began, and the submissions since; `None` once an end within it was seen.
    queue: Option<(u64, OfKinds)>,
    means: [Mean; 2],
}

/// The keeper's next step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// The others should hold back.
    Begin,
    /// The ends of submissions are watched.
    Watch,
    /// The others may go on.
    End,
}

impl Alone {
    /// Returns the next step. A program that comes back after a pause, or that gets company, may do other work than before: it is
    /// measured soon.
    pub fn step(&mut self, has_company: bool, now_ns: u64) -> Step {
        let before_ns = std::mem::replace(&mut self.polled_ns, now_ns);
        let is_back = now_ns.saturating_sub(before_ns) >= LATER;
        let gets_company = has_company && std::mem::take(&mut self.had_no_company);
        if is_back || gets_company {
            self.next_ns = self.next_ns.min(now_ns.saturating_add(SOON));
        }
        match &self.window {
            None if now_ns >= self.next_ns => Step::Begin,
            None => Step::Wait,
            Some(window) => {
                let longest = match window.has_company {
                    true => LONGEST,
                    false => LONGEST_WITHOUT_COMPANY,
                };
                let lasts = now_ns.saturating_sub(window.began_ns);
                let is_over = of_both(window.means).watched_ns >= WATCHED || lasts >= longest;
                if is_over { Step::End } else { Step::Watch }
            }
        }
    }

    /// Begins a measurement. With company the others hold back.
    pub fn begin(&mut self, has_company: bool, now_ns: u64) {
        self.window = Some(Window {
            began_ns: now_ns,
            has_company,
            is_alone: !has_company,
            ..Window::default()
        });
    }

    /// Records that the others have nothing queued any more.
    pub fn others_are_done(&mut self) {
        if let Some(window) = &mut self.window {
            window.is_alone = true;
        }
    }

    /// Records that `ended` submissions were seen done, and whether more are queued. The device works from one such end to
    /// the next, if it was not empty at the first.
    pub fn seen(&mut self, ended: OfKinds, is_more_queued: bool, now_ns: u64) {
        let kernel_ns = self.means[0].each_ns();
        let Some(window) = self.window.as_mut().filter(|window| window.is_alone) else {
            return;
        };
        if let Some(from) = window.from_ns {
            window.count(now_ns.saturating_sub(from), ended, kernel_ns);
            window.queue = None;
        }
        window.from_ns = is_more_queued.then_some(now_ns);
    }

    /// Records submissions, of which the first begins a queue if nothing `is_queued`.
    pub fn submitted(&mut self, is_queued: bool, counts: OfKinds, now_ns: u64) {
        let Some(window) = self.window.as_mut().filter(|window| window.is_alone) else {
            return;
        };
        if !is_queued {
            window.queue = Some((now_ns, [0, 0]));
        }
        if let Some((_, submitted)) = &mut window.queue {
            *submitted = std::array::from_fn(|kind| submitted[kind] + counts[kind]);
        }
    }

    /// Records that the application has waited since `began_ns` for all that was queued. A program that waits after each few
    /// submissions never has one queued behind another's end. The wait was nearly all of the time, so the device worked.
    pub fn waited(&mut self, began_ns: u64, now_ns: u64) {
        let kernel_ns = self.means[0].each_ns();
        let Some(window) = &mut self.window else {
            return;
        };
        if let Some((from, submitted)) = window.queue.take()
            && now_ns.saturating_sub(began_ns.max(from)) >= now_ns.saturating_sub(from) / 4 * 3
        {
            window.count(now_ns.saturating_sub(from), submitted, kernel_ns);
        }
    }

    /// Ends the measurement under way, if any.
    pub fn end(&mut self, now_ns: u64) {
        let Some(window) = self.window.take() else {
            return;
        };
        self.fruitless = match of_both(window.means).ended {
            0 => self.fruitless.saturating_add(1),
            _ => 0,
        };
        if window.has_company || self.fruitless == 0 {
            self.count = self.count.saturating_add(1);
        }
        self.had_no_company = !window.has_company;
        let is_doubtful = self.is_doubted_by(&window);
        if self.is_doubtful && is_doubtful {
            (self.means, self.count) = (Default::default(), 0);
        }
        self.is_doubtful = is_doubtful && self.count != 0;
        let pause = match (self.count, self.fruitless) {
            (..FIRST, ..FIRST) => SOON,
            (..FIRST, _) if window.has_company => SOON,
            _ if self.is_doubtful => SOON,
            (..MANY, 0) => LATER,
            (_, 0) => RARELY,
            (_, fruitless) if window.has_company => {
                FRUITLESS.min(LATER << fruitless.saturating_sub(FIRST).min(8))
            }
            _ => FRUITLESS,
        };
        self.next_ns = now_ns.saturating_add(pause);
        for (mean, seen) in self.means.iter_mut().zip(window.means) {
            mean.add(seen);
            while mean.watched_ns > MEMORY {
                mean.watched_ns /= 2;
                mean.ended /= 2;
            }
        }
    }

    /// Returns true if a measurement is less than half or more than twice what is known. One alone means little, because the
    /// kernels of a program differ; after two in a row the measurements begin anew.
    fn is_doubted_by(&self, window: &Window) -> bool {
        let (Some(seen), known) = (of_both(window.means).each_ns(), self.each_ns()) else {
            return false;
        };
        self.count > FIRST && known != 0 && (seen / 2 > known || known / 2 > seen)
    }

    /// Returns true while a measurement is under way.
    pub fn is_measuring(&self) -> bool {
        self.window.is_some()
    }

    /// Returns true while the others hold back for a measurement.
    pub fn has_company(&self) -> bool {
        self.window
            .as_ref()
            .is_some_and(|window| window.has_company)
    }

    /// Returns true while the others finish what they had queued. The process submits nothing, because their kernels would wait
    /// behind its own.
    pub fn waits(&self) -> bool {
        self.window.as_ref().is_some_and(|window| !window.is_alone)
    }

    /// Returns the time that a submission takes alone, in nanoseconds; 0 while unknown.
    pub fn each_ns(&self) -> u64 {
        let both = of_both(self.means);
        let is_enough = both.watched_ns >= ENOUGH;
        both.each_ns().filter(|_| is_enough).unwrap_or(0)
    }

    /// Returns the time that so many submissions take alone, in nanoseconds. A kind that is not known counts as the other.
    pub fn time_of(&self, counts: OfKinds) -> u64 {
        let times = counts.iter().zip(self.means);
        times.fold(0, |sum, (count, mean)| {
            sum.saturating_add(count.saturating_mul(mean.each_ns().unwrap_or(self.each_ns())))
        })
    }
}

impl Window {
    /// Counts submissions that took this time together. Where both kinds are among them, the kernels took what they usually do.
    fn count(&mut self, watched_ns: u64, ended: OfKinds, kernel_ns: Option<u64>) {
        let kernels_ns = match (ended, kernel_ns) {
            ([_, 0], _) => watched_ns,
            ([0, _], _) => 0,
            (_, None) => return,
            ([kernels, _], Some(each)) => kernels.saturating_mul(each).min(watched_ns / 2),
        };
        let times = [kernels_ns, watched_ns - kernels_ns];
        for (mean, (watched_ns, ended)) in self.means.iter_mut().zip(times.into_iter().zip(ended)) {
            mean.add(Mean { watched_ns, ended });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Measures a program whose submissions end at these times after the others have finished.
    fn measured(alone: &mut Alone, at_ns: u64, ends: &[(u64, u32, bool)]) -> u64 {
        alone.begin(true, at_ns);
        alone.others_are_done();
        for (end, ended, is_more) in ends {
            alone.seen([u64::from(*ended), 0], *is_more, at_ns + end);
        }
        alone.end(at_ns + LONGEST);
        alone.each_ns()
    }

    #[test]
    fn a_submission_takes_the_time_between_two_ends_with_work_queued() {
        let ends = [
            (0, 9, true),
            (2 * MS, 2, true),
            (5 * MS, 3, false),
            (90 * MS, 1, true),
        ];
        assert_eq!(measured(&mut Alone::default(), 0, &ends), MS);
    }

    #[test]
    fn what_ends_while_the_others_finish_does_not_count() {
        let mut alone = Alone::default();
        alone.begin(true, 0);
        for end in 0..20 {
            alone.seen([1, 0], true, end * MS);
        }
        alone.end(20 * MS);
        assert_eq!(alone.each_ns(), 0);
    }

    #[test]
    fn a_program_that_waits_for_each_submission_is_measured_by_its_waits() {
        let mut alone = Alone::default();
        alone.begin(true, 0);
        alone.submitted(false, [1, 0], 0);
        alone.waited(0, 5 * MS);
        alone.others_are_done();
        assert_eq!(alone.each_ns(), 0, "the others were not done");
        for began in [10 * MS, 20 * MS] {
            alone.submitted(false, [1, 0], began);
            alone.submitted(true, [1, 0], began + MS);
            alone.seen([2, 0], false, began + 8 * MS);
            alone.waited(began + MS, began + 8 * MS);
        }
        // The device may have been empty while the program computed.
        alone.submitted(false, [1, 0], 30 * MS);
        alone.waited(35 * MS, 39 * MS);
        assert_eq!(alone.step(true, 39 * MS), Step::End);
        alone.end(39 * MS);
        assert_eq!(alone.each_ns(), 4 * MS);
    }

    #[test]
    fn what_was_seen_by_its_ends_does_not_count_again_as_a_wait() {
        let mut alone = Alone::default();
        alone.begin(true, 0);
        alone.others_are_done();
        alone.submitted(false, [3, 0], 0);
        alone.seen([1, 0], true, 2 * MS);
        alone.seen([2, 0], false, 6 * MS);
        alone.waited(0, 6 * MS);
        alone.end(9 * MS);
        assert_eq!(alone.each_ns(), 2 * MS);
    }

    #[test]
    fn a_program_that_does_other_work_after_a_pause_is_measured_anew() {
        let mut alone = Alone::default();
        let mut now = LATER;
        let mut next = |alone: &mut Alone, within_ns, each_ns: u64| {
            let waited = (0..)
                .map(|at| at * MS)
                .find(|at| alone.step(true, now + at) == Step::Begin);
            assert!(waited.expect("it comes") <= within_ns, "{waited:?}");
            now += waited.expect("it comes");
            let ended = WATCHED / each_ns;
            alone.begin(true, now);
            alone.others_are_done();
            alone.seen([1, 0], true, now);
            alone.seen([ended, 0], true, now + WATCHED);
            now += WATCHED;
            alone.end(now);
        };
        (0..10).for_each(|_| next(&mut alone, LATER, MS / 100));
        assert_eq!(alone.each_ns(), MS / 100);
        // It waits for the others to be ready, and then does its proper work.
        alone.polled_ns = 0;
        next(&mut alone, SOON, MS);
        assert!(alone.each_ns() < MS / 50, "one may be chance");
        (0..8).for_each(|_| next(&mut alone, SOON, MS));
        assert_eq!(alone.each_ns(), MS);
    }

    #[test]
    fn what_was_not_seen_while_a_program_was_loaded_delays_no_measurement_in_company() {
        let mut alone = Alone::default();
        let mut now = 0;
        for _ in 0..3 * FIRST {
            while alone.step(false, now) != Step::Begin {
                now += MS;
            }
            alone.begin(false, now);
            now += MS;
            alone.end(now);
        }
        assert_eq!(alone.step(false, now + FRUITLESS - MS), Step::Wait);
        // Its company comes within a second of its last poll.
        now += FRUITLESS - MS;
        for _ in 0..FIRST {
            let begins = (0..=SOON / MS).find(|at| alone.step(true, now + at * MS) == Step::Begin);
            now += begins.expect("soon") * MS;
            alone.begin(true, now);
            now += MS;
            alone.end(now);
        }
    }

    #[test]
    fn a_few_kernels_are_no_measurement() {
        let mut alone = Alone::default();
        assert_eq!(measured(&mut alone, 0, &[(0, 1, true), (MS, 100, true)]), 0);
        assert_eq!(
            measured(&mut alone, 0, &[(0, 1, true), (MS, 100, true)]),
            MS / 100
        );
    }

    #[test]
    fn graphs_and_kernels_are_measured_apart() {
        let mut alone = Alone::default();
        alone.begin(true, 0);
        alone.others_are_done();
        for (ended, at) in [([0, 1], 0), ([4, 0], 4), ([0, 1], 11), ([2, 1], 20)] {
            alone.seen(ended, true, at * MS);
        }
        alone.end(20 * MS);
        assert_eq!(alone.time_of([3, 0]), 3 * MS);
        assert_eq!(
            alone.time_of([0, 2]),
            14 * MS,
            "a mixed time says nothing while a kernel's is unknown"
        );
        alone.begin(true, 0);
        alone.others_are_done();
        alone.seen([0, 1], true, 0);
        alone.seen([2, 1], true, 11 * MS);
        alone.end(20 * MS);
        assert_eq!(
            alone.time_of([0, 2]),
            16 * MS,
            "2 of the 11 are the kernels'"
        );
    }

    #[test]
    fn several_measurements_count_together_and_old_ones_less() {
        let mut alone = Alone::default();
        measured(&mut alone, 0, &[(0, 1, true), (4 * MS, 4, true)]);
        assert_eq!(
            measured(&mut alone, 0, &[(0, 1, true), (4 * MS, 1, true)]),
            8 * MS / 5
        );
        for _ in 0..64 {
            measured(&mut alone, 0, &[(0, 1, true), (4 * MS, 40, true)]);
        }
        assert!(alone.each_ns() < MS / 8, "{}", alone.each_ns());
    }

    #[test]
    fn the_first_measurements_follow_each_other_and_a_program_without_a_queue_ends_them_too() {
        let mut alone = Alone::default();
        let mut now = 0;
        for _ in 0..FIRST {
            assert_eq!(alone.step(true, now), Step::Begin);
            alone.begin(true, now);
            assert_eq!(alone.step(true, now), Step::Watch);
            assert_eq!(alone.step(true, now + LONGEST), Step::End);
            now += LONGEST;
            alone.end(now);
            assert_eq!(alone.step(true, now), Step::Wait);
            now += SOON;
        }
        for pause in [LATER, 2 * LATER, 4 * LATER, FRUITLESS, FRUITLESS] {
            now += pause - SOON;
            assert_eq!(alone.step(true, now - 1), Step::Wait);
            assert_eq!(alone.step(true, now), Step::Begin);
            alone.begin(true, now);
            alone.end(now);
            now += SOON;
        }
        now += FRUITLESS - SOON;
        for pause in [LATER, LATER, RARELY] {
            measured(&mut alone, now, &[(0, 1, true), (MS, 1, true)]);
            now += LONGEST;
            assert_eq!(alone.step(true, now + pause - 1), Step::Wait);
            assert_eq!(alone.step(true, now + pause), Step::Begin);
        }
    }
}
