//! The queue depth: a limit on the work that a process has queued on the device. It applies under `overlap`, and in
//! time slices while another process waits.
//!
//! A program that never synchronises fills the driver's queue within microseconds. Then a request to hold back takes
//! effect a thousand kernels too late, and a slice ends only when the queue has drained. So while another process
//! waits, or may make this one hold back, an event is recorded behind every few submissions. The events tell how many
//! submissions are done and how long one takes. No more is admitted than the device does in the time allowed. The
//! device is never drained for this and stays busy.

mod pace;

use pace::Pace;
use std::{collections::VecDeque, time::Duration};

use shm_layout::clock;

use crate::{
    driver_query::context,
    thread::Used,
    turn::{
        alone::{Alone, OfKinds},
        context_end::ContextEnd,
        drain::{Event, shared},
    },
};

/// Work queued longer ago than this many times the time allowed, and still not done, was underestimated.
const LATE: u64 = 4;
const SHORTEST_NAP: u64 = 20_000;
const LONGEST_NAP: u64 = 200_000;

/// The queued work of a process on one device.
#[derive(Default)]
pub struct QueueDepth {
    /// Events behind submissions, oldest first.
    tickets: VecDeque<Ticket>,
    /// Submissions that have no event behind them.
    uncovered: Vec<(Used, Submissions)>,
    /// Events to reuse.
    spare: Vec<Mark>,
    /// Submissions not known to be done.
    queued: u64,
    /// The time of the last question for room: a submission is made after it.
    asked_ns: u64,
    /// Submissions that are not charged yet.
    uncharged: OfKinds,
    /// The time that the submissions since take alone, as far as it is not charged, and until when it is, in nanoseconds.
    owed_ns: u64,
    charged_ns: u64,
    /// The time that a submission takes while the process has the device to itself.
    alone: Alone,
    /// More than `queued` may be queued: tracking was given up, or no event could be recorded.
    is_more: bool,
    pace: Pace,
}

/// An event behind the work of a stream.
struct Mark {
    event: Event,
    used: Used,
}

struct Ticket {
    mark: Mark,
    covers: Submissions,
    recorded_ns: u64,
}

/// A number of submissions, and the graphs among them.
#[derive(Clone, Copy, Default)]
struct Submissions {
    count: u32,
    graphs: u32,
}

impl Submissions {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.graphs += more.graphs;
    }

    fn of_kinds(self) -> OfKinds {
        [u64::from(self.count - self.graphs), u64::from(self.graphs)]
    }
}

impl QueueDepth {
    /// Begins a turn, in which the process has the device alone, or work beside others.
    pub fn begin(&mut self, alone: bool) {
        self.pace.alone = alone;
    }

    /// Returns the measurement of what a submission takes alone.
    pub fn alone(&mut self) -> &mut Alone {
        &mut self.alone
    }

    /// Notes the ends of submissions, for the measurement under way.
    pub fn watch(&mut self, now_ns: u64) {
        self.is_empty(now_ns);
    }

    /// Notes that the application has waited for the device since `began_ns`.
    pub fn waited(&mut self, began_ns: u64, now_ns: u64) {
        if self.is_empty(now_ns) {
            self.alone.waited(began_ns, now_ns);
            self.owed_ns = self.owed_ns.min(now_ns.saturating_sub(self.charged_ns));
        }
    }

    /// Sets the time that a submission takes alone, in nanoseconds; 0 where that is not measured.
    pub fn set_lone_ns(&mut self, ns: u64) {
        self.pace.lone_ns = ns;
    }

    /// Returns the time that a submission takes, of the shortest recent ones, in nanoseconds; 0 where that is not known.
    pub fn submission_ns(&self) -> u64 {
        self.pace.cost_ns
    }

    /// Returns the time that a submission takes alone, in nanoseconds; 0 where that is not known.
    pub fn lone_ns(&self) -> u64 {
        self.pace.lone_ns
    }

    /// Returns the time that the submissions take alone, in nanoseconds, as far as it has passed since the last call and was not
    /// returned before; 0 where it is not known. The device cannot have done more, whatever the mean of the submissions says.
    pub fn take_due(&mut self, now_ns: u64) -> u64 {
        let counts = std::mem::take(&mut self.uncharged);
        if self.pace.lone_ns != 0 {
            self.owed_ns = self.owed_ns.saturating_add(self.alone.time_of(counts));
        }
        let before_ns = std::mem::replace(&mut self.charged_ns, now_ns);
        let due_ns = self.owed_ns.min(now_ns.saturating_sub(before_ns));
        self.owed_ns = match self.queued {
            0 => 0,
            _ => self.owed_ns - due_ns,
        };
        due_ns
    }

    /// Returns how many submissions may go in now, at least one, or how long to wait before the next poll.
    pub fn room(&mut self, depth_ns: u64, now_ns: u64) -> Result<u32, Duration> {
        self.asked_ns = now_ns;
        self.room_for(0, depth_ns, now_ns)
    }

    /// Does the same as [`room`](Self::room), with the new submission counted as queued: only a short one may go in. Half of
    /// `gap_ns` may be queued, or two kernels that fit into it, so that the device does not run dry.
    pub fn room_for_one_more(
        &mut self,
        depth_ns: u64,
        gap_ns: u64,
        now_ns: u64,
    ) -> Result<u32, Duration> {
        self.asked_ns = now_ns;
        let most = |cost: u64| depth_ns.max(cost.saturating_mul(2).max(gap_ns / 2).min(gap_ns));
        let fits = |cost: u64| (1..=most(cost)).contains(&cost);
        // The end of what is queued is watched, because only then the duration becomes known.
        if !fits(self.pace.cost_ns) && !self.is_empty(now_ns) {
            let nap = (self.pace.cost_ns / 8).clamp(SHORTEST_NAP, LONGEST_NAP);
            return Err(Duration::from_nanos(nap));
        }
        match self.pace.cost_ns {
            0 => Ok(1),
            cost if fits(cost) => self.room_for(1, most(cost), now_ns),
            _ => Err(Duration::MAX),
        }
    }

    /// Returns true if all queued work is done.
    pub fn is_empty(&mut self, now_ns: u64) -> bool {
        if self.tickets.is_empty() {
            self.cover_all(now_ns);
        }
        if self.tickets.is_empty() {
            self.queued = 0;
        } else {
            self.take_done(now_ns);
        }
        self.queued == 0
    }

    fn room_for(&mut self, more: u64, depth_ns: u64, now_ns: u64) -> Result<u32, Duration> {
        match self.full_for(more, depth_ns, now_ns) {
            Some(nap) => Err(nap),
            // Allotted submissions that are not made yet would count as done at the next wait.
            None if self.alone.is_measuring() => Ok(1),
            None => Ok(self.pace.allotment(self.queued, depth_ns, now_ns)),
        }
    }

    fn full_for(&mut self, more: u64, depth_ns: u64, now_ns: u64) -> Option<Duration> {
        loop {
            if self.queued == 0 {
                return None;
            }
            let left = self.pace.left(self.queued + more, depth_ns, now_ns);
            let oldest = self.tickets.front();
            // Work queued so long ago and still not done blocks all later work, whatever its estimate.
            let late = self.queued > 1
                && oldest.is_some_and(|ticket| {
                    now_ns.saturating_sub(ticket.recorded_ns) > LATE * depth_ns
                });
            if left <= depth_ns && !late {
                return None;
            }
            if self.tickets.is_empty() {
                self.cover_all(now_ns);
            }
            if self.tickets.is_empty() {
                self.queued = 0;
                continue;
            }
            if !self.take_done(now_ns) {
                let nap = (left.saturating_sub(depth_ns) / 2).clamp(SHORTEST_NAP, LONGEST_NAP);
                return Some(Duration::from_nanos(nap));
            }
        }
    }

    /// Removes finished work from the queue; several events may have ended since the last poll. Returns false if none
    /// had.
    fn take_done(&mut self, now_ns: u64) -> bool {
        let (mut first, mut all) = (0, Submissions::default());
        while let Some(oldest) = self.tickets.front()
            && !oldest.mark.is_pending()
            && let Some(ticket) = self.tickets.pop_front()
        {
            if all.count == 0 {
                first = ticket.covers.count;
            }
            all.add(ticket.covers);
            self.spare.push(ticket.mark);
        }
        if all.count == 0 {
            self.pace.pending(now_ns);
            return false;
        }
        // They may have ended since the caller looked at the clock.
        let now_ns = clock::now();
        self.queued = self.queued.saturating_sub(u64::from(all.count));
        let is_more_queued = !self.tickets.is_empty();
        self.alone.seen(all.of_kinds(), is_more_queued, now_ns);
        let is_empty = self.tickets.is_empty() && self.uncovered.is_empty();
        self.pace.done(first, all.count, is_empty, now_ns);
        true
    }

    /// Returns true if the queued work is known to end within `within_ns`, provided that nothing more goes in. An
    /// empty queue returns false: only the streams tell whether all work is done.
    pub fn is_nearly_done(&mut self, within_ns: u64, now_ns: u64) -> bool {
        self.cover_all(now_ns);
        self.take_done(now_ns);
        if self.is_more || self.queued == 0 {
            return false;
        }
        let first = self.tickets.front().map_or(0, |ticket| ticket.covers.count);
        self.pace
            .rest(self.queued, first, now_ns)
            .is_some_and(|rest| rest <= within_ns)
    }

    /// Estimates how long the queued work still takes, at most the time allowed, in nanoseconds.
    pub fn left(&self, depth_ns: u64, now_ns: u64) -> u64 {
        self.pace.left(self.queued, depth_ns, now_ns).min(depth_ns)
    }

    /// Returns the time at which work was last seen done, in nanoseconds.
    pub fn progress_ns(&self) -> u64 {
        self.pace.progress_ns
    }

    /// Records that the calling thread has submitted to a stream, as the first of `allotted` submissions to it, and whether this
    /// first one is a graph. All of them count as queued from now on. Their event is recorded after the next allotment's first one.
    pub fn submitted(
        &mut self,
        used: Used,
        allotted: u32,
        is_graph: bool,
        depth_ns: u64,
        now_ns: u64,
    ) {
        let new = Submissions {
            count: allotted,
            graphs: u32::from(is_graph),
        };
        let counts = new.of_kinds();
        let in_one = match self.alone.is_measuring() {
            true => 1,
            false => self.pace.in_one(depth_ns),
        };
        self.cover_from(used, in_one, now_ns);
        self.alone.submitted(self.queued != 0, counts, now_ns);
        if self.queued == 0 {
            self.pace.begin(self.asked_ns.min(now_ns), now_ns);
        }
        self.queued += u64::from(allotted);
        self.uncharged = std::array::from_fn(|kind| self.uncharged[kind] + counts[kind]);
        let mut uncovered = self.uncovered.iter_mut();
        match uncovered.find(|(known, ..)| *known == used) {
            Some((_, known)) => known.add(new),
            None => self.uncovered.push((used, new)),
        }
        if allotted == 1 {
            self.cover_from(used, in_one, now_ns);
        }
    }

    /// Records an event behind the uncovered submissions of a stream, if there are at least `least`.
    fn cover_from(&mut self, used: Used, least: u64, now_ns: u64) {
        let enough =
            |(known, all): &(Used, Submissions)| *known == used && u64::from(all.count) >= least;
        if let Some(at) = self.uncovered.iter().position(enough) {
            let (used, all) = self.uncovered.swap_remove(at);
            self.cover(used, all, now_ns);
        }
    }

    /// Records that a thread will not make its last `count` allotted submissions to a stream.
    pub fn give_back(&mut self, key: usize, count: u32) {
        let mut uncovered = self.uncovered.iter_mut();
        if let Some((_, known)) = uncovered.find(|(used, _)| used.stream == key) {
            let unused = count.min(known.count - known.graphs);
            known.count -= unused;
            self.queued = self.queued.saturating_sub(u64::from(unused));
            self.uncharged[0] = self.uncharged[0].saturating_sub(u64::from(unused));
        }
        self.uncovered.retain(|(_, all)| all.count != 0);
    }

    fn cover_all(&mut self, now_ns: u64) {
        for (used, all) in std::mem::take(&mut self.uncovered) {
            self.cover(used, all, now_ns);
        }
    }

    /// Records an event behind the uncovered submissions of a stream. If no event can be recorded, they count as
    /// done.
    fn cover(&mut self, used: Used, covers: Submissions, now_ns: u64) {
        let spare = self
            .spare
            .iter()
            .position(|mark| mark.used.context == used.context);
        let spare = spare.map(|at| self.spare.swap_remove(at));
        match Mark::behind(spare, used) {
            Some(mark) => self.tickets.push_back(Ticket {
                mark,
                covers,
                recorded_ns: now_ns,
            }),
            None => {
                self.queued = self.queued.saturating_sub(u64::from(covers.count));
                self.is_more = true;
            }
        }
    }

    /// Covers the submissions to streams that are about to be captured or to end, with `end` or alone: only their events can be
    /// asked then.
    pub fn seal(&mut self, which: impl Fn(&Used) -> bool, end: Option<&ContextEnd>, now_ns: u64) {
        let queued = self.tickets.iter().map(|ticket| &ticket.mark.used);
        let spare = self.spare.iter().map(|mark| &mark.used);
        let mut all = self
            .uncovered
            .iter()
            .map(|(used, _)| used)
            .chain(queued)
            .chain(spare);
        if !all.any(&which) {
            return;
        }
        let ending: Vec<_> = self
            .uncovered
            .extract_if(.., |(used, _)| which(used))
            .collect();
        for (used, all) in ending {
            if end.is_some_and(ContextEnd::is_gone) {
                self.queued = self.queued.saturating_sub(u64::from(all.count));
                continue;
            }
            let stream = shared(used.stream);
            self.cover(Used { stream, ..used }, all, now_ns);
        }
        let queued = self.tickets.iter_mut().map(|ticket| &mut ticket.mark);
        let marks = queued.chain(&mut self.spare);
        for mark in marks.filter(|mark| which(&mark.used)) {
            end.into_iter().for_each(|end| mark.event.ends.add(end));
            mark.used.stream = 0;
        }
        self.spare.retain(|mark| !mark.event.ends.is_gone());
    }

    /// Records that all queued work is done.
    pub fn finished(&mut self) {
        self.spare
            .extend(self.tickets.drain(..).map(|ticket| ticket.mark));
        self.uncovered.clear();
        self.queued = 0;
        self.is_more = false;
    }

    /// Stops tracking the queued work but keeps the measured duration. The events are kept, because the driver may
    /// not respond here and must not be called.
    pub fn forget_all(&mut self) {
        self.finished();
        self.is_more = true;
    }
}

impl Mark {
    /// Records a mark behind all work of a stream, with the event of `spare` if given.
    fn behind(spare: Option<Mark>, used: Used) -> Option<Mark> {
        let (mut event, mut spare) = (None, spare);
        context::relaxed(|| {
            context::with_current(used.context, || {
                event = Event::record(spare.take().map(|mark| mark.event), used.stream)
            });
        });
        // It has ended with its context, which cannot be made current.
        std::mem::forget(spare);
        event.map(|event| Mark { event, used })
    }

    fn is_pending(&self) -> bool {
        let mut pending = false;
        context::relaxed(|| pending = self.event.is_pending_in(self.used.context));
        pending
    }
}

#[cfg(test)]
mod tests {
    use super::QueueDepth;
    use crate::thread::Used;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_was_given_up_or_has_no_event_is_never_nearly_done() {
        let mut depth = QueueDepth::default();
        depth.pace.longest_ns = MS;
        assert!(!depth.is_nearly_done(2 * MS, 0), "the streams tell");
        depth.queued = 1;
        assert!(depth.is_nearly_done(2 * MS, 0));
        depth.forget_all();
        depth.queued = 1;
        assert!(!depth.is_nearly_done(2 * MS, 0), "more may be queued");
        depth.finished();
        depth.queued = 1;
        assert!(depth.is_nearly_done(2 * MS, 0), "all of that is done");
    }

    #[test]
    fn in_turns_the_average_counts_and_beside_others_the_shortest() {
        let mut depth = QueueDepth::default();
        for end in [10, 11, 15, 16, 20, 21, 25] {
            depth.pace.pending(end * MS);
            depth.pace.done(1, 1, false, end * MS);
        }
        let mut left = |alone| {
            depth.begin(alone);
            depth.pace.left(10, 2 * MS, 25 * MS)
        };
        assert!((10 * MS..11 * MS).contains(&left(false)));
        assert!((15 * MS..40 * MS).contains(&left(true)));
    }

    #[test]
    fn no_more_is_due_than_the_time_that_has_passed_and_nothing_once_all_is_done() {
        let mut depth = QueueDepth::default();
        let alone = depth.alone();
        alone.begin(true, 0);
        alone.others_are_done();
        alone.seen([0, 1], true, 0);
        alone.seen([0, 1], true, 6 * MS);
        alone.end(9 * MS);
        depth.set_lone_ns(6 * MS);
        assert_eq!(depth.take_due(10 * MS), 0);
        (depth.queued, depth.uncharged) = (1, [0, 1]);
        let due = [12, 15, 30, 40].map(|at| depth.take_due(at * MS) / MS);
        assert_eq!(due, [2, 3, 1, 0]);
        (depth.queued, depth.uncharged) = (9, [0, 9]);
        assert_eq!(depth.take_due(50 * MS), 10 * MS);
        depth.finished();
        assert_eq!(depth.take_due(53 * MS), 3 * MS, "until it was seen");
        assert_eq!(depth.take_due(90 * MS), 0);
    }

    #[test]
    fn a_submission_of_unknown_duration_took_no_longer_than_since_it_was_let_in() {
        let mut depth = QueueDepth::default();
        let used = Used {
            stream: 8,
            context: 1,
            ordinal: 0,
        };
        assert_eq!(depth.room_for_one_more(2 * MS, 0, 50 * MS), Ok(1));
        depth.submitted(used, 2, false, 2 * MS, 51 * MS);
        depth.pace.done(2, 2, true, 52 * MS);
        assert_eq!(depth.pace.cost_ns, MS);
    }

    #[test]
    fn allotted_submissions_that_are_given_back_are_not_queued() {
        let used = |stream| Used {
            stream,
            context: 1,
            ordinal: 0,
        };
        let mut depth = QueueDepth::default();
        depth.pace.cost_ns = MS / 20;
        depth.submitted(used(8), 10, false, 2 * MS, 0);
        depth.submitted(used(9), 5, false, 2 * MS, 0);
        assert_eq!(depth.queued, 15);
        depth.give_back(8, 7);
        depth.give_back(9, 5);
        depth.give_back(7, 3);
        assert_eq!((depth.queued, depth.uncovered.len()), (3, 1));
    }
}
