//! The lane of one process on one device: the latest changes with their exact times, and older ones painted into bins.

use std::collections::VecDeque;

use gpushare_sample::{EventLine, What};

use super::super::lengths::Lengths;
use super::super::ring::{Scale, Track};
use super::{BIN_NS, Columns, WINDOW_NS};

const SCALE: Scale = Scale {
    bin_ns: BIN_NS,
    keep: 1024,
};
const _: () = assert!(SCALE.is_even());
/// Changes younger than this are kept with their exact times.
const CLOSE_NS: u64 = 5_000_000_000;
/// Maximum number of exact changes of a lane: enough for a device handed between two processes 800 times a second.
const CHANGES: usize = 2048;
/// Number of refused allocations kept for each lane.
const DENIALS: usize = 256;

/// The activity in one span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Share of the time holding the lock or active beside others, 0 to 1.
    pub hold: f32,
    /// Share of the time waiting or held back.
    pub wait: f32,
    /// Share of the time in which an allocation waited for memory.
    pub memory: f32,
    /// Set if an allocation was refused.
    pub denied: bool,
}

impl Cell {
    /// Makes a cell, and clamps shares that rounding took above 1.
    fn new(shares: [f32; 3], denied: bool) -> Self {
        let [hold, wait, memory] = shares.map(|share| share.min(1.0));
        Self {
            hold,
            wait,
            memory,
            denied,
        }
    }
}

/// The activity of a process: a bit for each of its tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Does(u8);

impl Does {
    pub(super) const NOTHING: Self = Self(0);
    pub(super) const HOLD: Self = Self(1);
    pub(super) const WAIT: Self = Self(2);
    const MEMORY: Self = Self(4);

    /// Returns this activity with the lock's part taken from `lock`.
    pub(super) fn and_lock(self, lock: Self) -> Self {
        Self(self.0 & Self::MEMORY.0 | lock.0)
    }

    /// Returns this activity with or without waiting for memory.
    pub(super) fn and_memory(self, waits: bool) -> Self {
        let lock = self.0 & !Self::MEMORY.0;
        Self(lock | if waits { Self::MEMORY.0 } else { 0 })
    }

    /// Reports whether this activity is painted on a track.
    fn paints(self, track: usize) -> bool {
        self.0 >> track & 1 == 1
    }
}

/// A change of activity and its time.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    since_ns: u64,
    does: Does,
    /// The time spent on each track before, so that the time between two moments is a difference.
    spent: [u64; 3],
}

impl Change {
    /// Returns the time spent on each track up to a moment before the next change.
    fn until(&self, at_ns: u64) -> [u64; 3] {
        let ns = at_ns.saturating_sub(self.since_ns);
        let mut spent = self.spent;
        for (track, spent) in spent.iter_mut().enumerate() {
            *spent += ns * u64::from(self.does.paints(track));
        }
        spent
    }
}

/// The lane of one process on one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    /// The current activity.
    pub(super) does: Does,
    /// The last change that is not in `changes`. What was before it is painted.
    painted: Change,
    /// The changes since then, oldest first.
    changes: VecDeque<Change>,
    /// Time spent holding, waiting and waiting for memory. It is boxed because each sample reads the current activity
    /// of every lane.
    past: Box<[Track; 3]>,
    denied_ns: VecDeque<u64>,
    /// Lengths of the recent holds and waits.
    pub(super) lengths: Box<[Lengths; 2]>,
}

impl Lane {
    /// Returns the time of a change that is reported now. The result is at least `seen_ns`, because earlier samples
    /// showed the state up to then.
    pub(super) fn when(&self, at_ns: u64, seen_ns: u64) -> u64 {
        match self.last().since_ns {
            0 => at_ns,
            _ => at_ns.max(seen_ns),
        }
    }

    /// Returns the last change.
    fn last(&self) -> &Change {
        self.changes.back().unwrap_or(&self.painted)
    }

    /// Returns the time spent on each track up to a moment, except what is painted.
    fn spent_until(&self, at_ns: u64) -> [u64; 3] {
        let later = self.changes.partition_point(|c| c.since_ns <= at_ns);
        let last = later.checked_sub(1).and_then(|at| self.changes.get(at));
        last.unwrap_or(&self.painted).until(at_ns)
    }

    /// Adds a change; times before the last change stay as they are. A change to the same activity costs nothing.
    pub(super) fn change(&mut self, does: Does, at_ns: u64) {
        if does == self.does {
            return;
        }
        let since_ns = at_ns.max(self.last().since_ns);
        self.does = does;
        let spent = self.last().until(since_ns);
        match self.changes.back_mut().filter(|c| c.since_ns == since_ns) {
            Some(change) => change.does = does,
            None => self.changes.push_back(Change {
                since_ns,
                does,
                spent,
            }),
        }
        self.settle(since_ns);
    }

    /// Paints the changes that are too old to be kept exactly, many at once: bins lie far apart in memory.
    fn settle(&mut self, now_ns: u64) {
        let is_old = |change: &Change| now_ns.saturating_sub(change.since_ns) > 2 * CLOSE_NS;
        let until = match self.changes.front() {
            Some(first) if is_old(first) => now_ns - CLOSE_NS,
            _ if self.changes.len() < CHANGES => return,
            _ => self.changes[CHANGES / 2].since_ns,
        };
        while let Some(change) = self
            .changes
            .front()
            .copied()
            .filter(|c| c.since_ns <= until)
        {
            self.changes.pop_front();
            for (track, past) in self.past.iter_mut().enumerate() {
                if self.painted.does.paints(track) {
                    past.paint(SCALE, self.painted.since_ns, change.since_ns);
                }
            }
            self.painted = change;
        }
    }

    /// Passes each span of activity that is not painted to `each`; the current activity ends now.
    #[inline]
    fn runs(&self, now_ns: u64, mut each: impl FnMut(Does, u64, u64)) {
        let (mut from_ns, mut does) = (self.painted.since_ns, self.painted.does);
        for change in &self.changes {
            each(does, from_ns, change.since_ns.min(now_ns));
            (from_ns, does) = (change.since_ns, change.does);
        }
        each(does, from_ns, now_ns);
    }

    /// Counts a hold or a wait that has ended, if it began after `edited_ns`.
    pub(super) fn measure(&mut self, event: &EventLine, edited_ns: u64) {
        let (which, ns) = match event.what {
            What::Release { held_ns, .. } | What::Forced { held_ns } => (0, held_ns),
            What::Rest { active_ns } | What::Back { active_ns } => (0, active_ns),
            What::Hold { waited_ns } | What::Active { waited_ns } => (1, waited_ns),
            _ => return,
        };
        if ns > 0 && event.time_ns.saturating_sub(ns) >= edited_ns {
            self.lengths[which].add(event.time_ns, ns, WINDOW_NS);
        }
    }

    pub(super) fn deny(&mut self, at_ns: u64) {
        self.denied_ns.push_back(at_ns);
        if self.denied_ns.len() > DENIALS {
            self.denied_ns.pop_front();
        }
    }
}

/// A lane, as known up to a moment.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub(super) lane: &'a Lane,
    pub(super) now_ns: u64,
}

impl Known<'_> {
    /// Returns the activity in each of the columns.
    pub fn cells(self, columns: Columns, count: usize) -> impl Iterator<Item = Cell> {
        let denied = &self.lane.denied_ns;
        let [hold, wait, memory] = [0, 1, 2].map(|track| {
            let mut shares = vec![0.0; count];
            self.add(track, columns, &mut shares);
            shares
        });
        (0..count).map(move |column| {
            let mut denied = denied.iter();
            let is_denied = denied.any(|at| columns.span(column).contains(at));
            Cell::new([hold[column], wait[column], memory[column]], is_denied)
        })
    }

    /// Returns the activity in one span of time that begins and ends with a bin.
    pub(super) fn cell(self, from_ns: u64, to_ns: u64) -> Cell {
        let Known { lane, now_ns } = self;
        let [before, mut spent] = [from_ns, to_ns].map(|ns| lane.spent_until(ns.min(now_ns)));
        let [first, end] = [from_ns, to_ns].map(|ns| ns / BIN_NS);
        for ((ns, before), past) in spent.iter_mut().zip(before).zip(&*lane.past) {
            *ns -= before;
            if from_ns < lane.painted.since_ns {
                let steps = past.before(end).wrapping_sub(past.before(first));
                *ns += u64::from(steps) * SCALE.step_ns();
            }
        }
        let whole = (to_ns - from_ns).max(1) as f32;
        let shares = spent.map(|ns| ns as f32 / whole);
        let denied = &lane.denied_ns;
        Cell::new(
            shares,
            denied.iter().any(|at| (from_ns..to_ns).contains(at)),
        )
    }

    /// Adds the share of each column spent waiting.
    pub fn add_waits(self, columns: Columns, shares: &mut [f32]) {
        self.add(1, columns, shares);
    }

    /// Adds the share of each column that a track has. A frame reads thousands of columns.
    fn add(self, track: usize, columns: Columns, shares: &mut [f32]) {
        let Known { lane, now_ns } = self;
        let (first_ns, width_ns) = (columns.begin(), columns.column_ns.max(1));
        let share_of = |ns: u64| ns as f32 / width_ns as f32;
        let past = &lane.past[track];
        let painted = lane.painted.since_ns.div_ceil(BIN_NS);
        let (mut bin, bins) = (first_ns / BIN_NS, width_ns / BIN_NS);
        let mut sum = past.before(bin);
        // Most columns are empty, and narrow ones are not known from bins.
        if bins > 0 && sum != past.before(painted) {
            for share in shares.iter_mut() {
                if bin >= painted {
                    break;
                }
                bin += bins;
                let steps = past.before(bin).wrapping_sub(sum);
                *share += share_of(u64::from(steps) * SCALE.step_ns());
                sum = sum.wrapping_add(steps);
            }
        }
        let (mut column, mut end_ns) = (0, first_ns.saturating_add(width_ns));
        lane.runs(now_ns, |does, from_ns, until_ns| {
            let mut from_ns = from_ns.max(first_ns);
            while does.paints(track) && from_ns < until_ns {
                while end_ns <= from_ns && column < shares.len() {
                    column += 1;
                    end_ns += width_ns;
                }
                let Some(share) = shares.get_mut(column) else {
                    break;
                };
                let next_ns = end_ns.min(until_ns);
                *share += share_of(next_ns - from_ns);
                from_ns = next_ns;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    fn at(lane: &Lane, now_ns: u64) -> Known<'_> {
        Known { lane, now_ns }
    }

    fn cell(lane: Known<'_>, from_ns: u64, to_ns: u64) -> Cell {
        lane.cell(from_ns, to_ns)
    }

    fn cells(lane: Known<'_>, from_ns: u64, column_ns: u64, count: usize) -> Vec<Cell> {
        lane.cells(Columns { from_ns, column_ns }, count).collect()
    }

    #[test]
    fn a_hold_is_painted_where_it_was_and_nowhere_else() {
        let mut lane = Lane::default();
        lane.change(Does::WAIT, 10 * S);
        lane.change(Does::HOLD, 11 * S);
        lane.change(Does::NOTHING, 12 * S);
        let second = |s: u64| cell(at(&lane, 20 * S), s * S, (s + 1) * S);
        assert_eq!((second(10).hold, second(10).wait), (0.0, 1.0));
        assert_eq!((second(11).hold, second(11).wait), (1.0, 0.0));
        assert_eq!((second(12).hold, second(12).wait), (0.0, 0.0));
    }

    #[test]
    fn waiting_for_memory_is_painted_beside_what_the_lock_does() {
        let mut lane = Lane::default();
        lane.change(Does::HOLD, 10 * S);
        lane.change(lane.does.and_memory(true), 11 * S);
        lane.change(lane.does.and_lock(Does::NOTHING), 12 * S);
        lane.change(lane.does.and_memory(false), 13 * S);
        let second = |s: u64| cell(at(&lane, 20 * S), s * S, (s + 1) * S);
        let shares = |cell: Cell| (cell.hold, cell.memory);
        assert_eq!(shares(second(10)), (1.0, 0.0));
        assert_eq!(shares(second(11)), (1.0, 1.0));
        assert_eq!(shares(second(12)), (0.0, 1.0));
        assert_eq!(shares(second(13)), (0.0, 0.0));
    }

    #[test]
    fn short_slices_add_up_to_their_share_and_are_seen_closely() {
        let mut lane = Lane::default();
        for slice in 0..2000 {
            lane.change(Does::HOLD, 10 * S + slice * 10 * MS);
            lane.change(Does::WAIT, 10 * S + slice * 10 * MS + 5 * MS);
        }
        let known = at(&lane, 30 * S);
        for second in 10..30 {
            let cell = cell(known, second * S, (second + 1) * S);
            assert!((cell.hold - 0.5).abs() < 0.01, "{second}: {cell:?}");
        }
        let close = cells(known, 28 * S, 5 * MS, 4);
        let of = |of: fn(&Cell) -> f32| close.iter().map(of).collect::<Vec<f32>>();
        assert_eq!(of(|cell| cell.hold), [1.0, 0.0, 1.0, 0.0]);
        assert_eq!(of(|cell| cell.wait), [0.0, 1.0, 0.0, 1.0]);
    }

    #[test]
    fn changes_beyond_all_measure_take_a_bounded_room_and_add_up() {
        let mut lane = Lane::default();
        for change in 0..200_000 {
            let does = [Does::HOLD, Does::WAIT][change as usize % 2];
            lane.change(does, 10 * S + change * 10_000);
        }
        assert!(lane.changes.len() <= CHANGES);
        let cell = cell(at(&lane, 12 * S), 10 * S, 12 * S);
        assert!(
            (cell.hold - 0.5).abs() < 0.01 && (cell.wait - 0.5).abs() < 0.01,
            "{cell:?}"
        );
    }

    #[test]
    fn an_event_older_than_what_is_known_changes_nothing() {
        let mut lane = Lane::default();
        lane.change(Does::HOLD, 10 * S);
        let seen_ns = 12 * S;
        lane.change(Does::NOTHING, lane.when(11 * S, seen_ns));
        lane.change(Does::WAIT, lane.when(11 * S, seen_ns));
        let cell = cell(at(&lane, 12 * S), 10 * S, 12 * S);
        assert_eq!((cell.hold, cell.wait), (1.0, 0.0));
    }

    #[test]
    fn what_goes_on_counts_up_to_now_and_not_beyond() {
        let mut lane = Lane::default();
        lane.change(Does::WAIT, 10 * S);
        let second = |s: u64| cell(at(&lane, 12 * S + S / 2), s * S, (s + 1) * S).wait;
        assert_eq!([9, 10, 11, 12, 13].map(second), [0.0, 1.0, 1.0, 0.5, 0.0]);
        lane.change(Does::HOLD, 1000 * S);
        let second = |s: u64| cell(at(&lane, 1001 * S), s * S, (s + 1) * S);
        assert_eq!((second(999).wait, second(1000).hold), (1.0, 1.0));
    }

    #[test]
    fn any_changes_are_shown_as_those_of_which_each_moment_is_asked() {
        // A sequence from a small generator, longer than what is kept exactly.
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut lane, mut spans, mut time) = (Lane::default(), Vec::new(), 10 * S);
        for _ in 0..400 {
            let does = Does(next(8) as u8).and_lock(Does(next(3) as u8));
            lane.change(does, time);
            let end = time + next(200) * MS;
            spans.push((does, time..end));
            time = end;
        }
        let columns = (time - 10 * S).div_ceil(2 * BIN_NS) as usize;
        let begin = 10 * S;
        for (column, cell) in (0..).zip(cells(at(&lane, time), begin, 2 * BIN_NS, columns)) {
            let from = begin + column * 2 * BIN_NS;
            let to = from + 2 * BIN_NS;
            let wanted = [0, 1, 2].map(|track: usize| {
                let of = spans.iter().filter(|(does, _)| does.paints(track));
                let ns: u64 = of
                    .map(|(_, span)| span.end.min(to).saturating_sub(span.start.max(from)))
                    .sum();
                ns as f32 / (2 * BIN_NS) as f32
            });
            for (seen, wanted) in [cell.hold, cell.wait, cell.memory].into_iter().zip(wanted) {
                assert!((seen - wanted).abs() < 0.03, "{column}: {cell:?}, {wanted}");
            }
        }
    }
}
