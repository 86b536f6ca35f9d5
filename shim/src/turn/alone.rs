//! The time that a submission of a process takes while the process has the device to itself.
//!
//! Clients of MPS share the device kernel by kernel, and the time until a kernel's end says more about the others than about
//! the process. So the others hold back for a moment, and the ends of the submissions are watched. One measurement covers a few
//! milliseconds of a program whose kernels differ, so several count together.

/// Time to watch, and the longest time until that much was seen, in nanoseconds. It includes the time in which the others finish
/// what they had queued.
const WATCHED: u64 = 4_000_000;
const LONGEST: u64 = 40_000_000;
/// The longest time where no other process is active, and so none has to hold back.
const LONGEST_WITHOUT_COMPANY: u64 = 10 * LONGEST;
/// Number of measurements that follow each other at once, and the pauses between measurements then and later.
const FIRST: u32 = 8;
const SOON: u64 = 20_000_000;
const LATER: u64 = 1_000_000_000;
/// The pause after a measurement in which nothing was seen: the device is faster than the program.
const FRUITLESS: u64 = 10_000_000_000;
/// Watched time from which older measurements count for half, in nanoseconds.
const MEMORY: u64 = 64_000_000;

/// The measurements of a process on a device.
#[derive(Debug, Default)]
pub struct Alone {
    /// Watched time in nanoseconds, and the submissions that ended in it.
    watched_ns: u64,
    ended: u64,
    /// The measurement under way.
    window: Option<Window>,
    /// Measurements so far, and the time of the next one.
    count: u32,
    next_ns: u64,
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
    watched_ns: u64,
    ended: u64,
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
    /// Returns the next step.
    pub fn step(&self, now_ns: u64) -> Step {
        match &self.window {
            None if now_ns >= self.next_ns => Step::Begin,
            None => Step::Wait,
            Some(window) => {
                let longest = match window.has_company {
                    true => LONGEST,
                    false => LONGEST_WITHOUT_COMPANY,
                };
                let lasts = now_ns.saturating_sub(window.began_ns);
                let is_over = window.watched_ns >= WATCHED || lasts >= longest;
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
    pub fn seen(&mut self, ended: u32, is_more_queued: bool, now_ns: u64) {
        let Some(window) = self.window.as_mut().filter(|window| window.is_alone) else {
            return;
        };
        if let Some(from) = window.from_ns {
            window.watched_ns += now_ns.saturating_sub(from);
            window.ended += u64::from(ended);
        }
        window.from_ns = is_more_queued.then_some(now_ns);
    }

    /// Ends the measurement under way, if any.
    pub fn end(&mut self, now_ns: u64) {
        let Some(window) = self.window.take() else {
            return;
        };
        self.count = self.count.saturating_add(1);
        let pause = match window.ended {
            _ if self.count < FIRST => SOON,
            0 if !window.has_company => FRUITLESS,
            _ => LATER,
        };
        self.next_ns = now_ns.saturating_add(pause);
        self.watched_ns += window.watched_ns;
        self.ended += window.ended;
        while self.watched_ns > MEMORY {
            self.watched_ns /= 2;
            self.ended /= 2;
        }
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
        self.watched_ns.checked_div(self.ended).unwrap_or(0)
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
            alone.seen(*ended, *is_more, at_ns + end);
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
            alone.seen(1, true, end * MS);
        }
        alone.end(20 * MS);
        assert_eq!(alone.each_ns(), 0);
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
            assert_eq!(alone.step(now), Step::Begin);
            alone.begin(true, now);
            assert_eq!(alone.step(now), Step::Watch);
            assert_eq!(alone.step(now + LONGEST), Step::End);
            now += LONGEST;
            alone.end(now);
            assert_eq!(alone.step(now), Step::Wait);
            now += SOON;
        }
        assert_eq!(alone.step(now), Step::Wait);
        assert_eq!(alone.step(now + LATER), Step::Begin);
    }
}
