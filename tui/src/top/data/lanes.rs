//! Lock lanes: for each process and device, how much of each moment went to holding, to waiting, and to waiting for memory.
//!
//! Events paint exact spans; the state in each sample corrects what lost events left wrong. Two minutes are kept in bins
//! of [`BIN_NS`], and the last seconds in [`FINE_NS`] as well, to see short slices turn by turn.

use std::collections::{HashSet, VecDeque};

use crate::sample::{EventLine, LockState, Sample, What};

use super::ring::{Doing, Ring};
use crate::sample::Who;
use rustc_hash::FxHashMap;

/// Shares of the lock are counted over this long.
pub const WINDOW_NS: u64 = 20_000_000_000;
/// The width of a bin.
pub const BIN_NS: u64 = 125_000_000;
/// The width of a bin for looking closely.
pub const FINE_NS: u64 = 5_000_000;
const BINS: usize = 1024;
const FINE_BINS: usize = 512;
/// Refused allocations kept for each lane.
const DENIALS: usize = 256;

/// What happened in one span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Share of the time it held the lock, or was active beside others, 0 to 1.
    pub hold: f32,
    /// Share of the time it waited or was held back.
    pub wait: f32,
    /// Share of the time an allocation waited for memory.
    pub memory: f32,
    /// Was an allocation refused?
    pub denied: bool,
}

/// One process on one device.
#[derive(Clone, Debug)]
pub struct Lane {
    coarse: Ring,
    fine: Ring,
    denied_ns: VecDeque<u64>,
    doing: Option<Doing>,
    /// An allocation waits for memory, whatever the lock.
    wants_memory: bool,
    /// Up to where the bins are filled; what is older is never painted again.
    painted_ns: u64,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            coarse: Ring::new(BIN_NS, BINS),
            fine: Ring::new(FINE_NS, FINE_BINS),
            denied_ns: VecDeque::new(),
            doing: None,
            wants_memory: false,
            painted_ns: 0,
        }
    }
}

impl Lane {
    /// Paints what it does up to `now_ns`.
    fn extend(&mut self, now_ns: u64) {
        if now_ns <= self.painted_ns {
            return;
        }
        if let Some(doing) = self.doing {
            self.coarse.paint(doing, self.painted_ns, now_ns);
            self.fine.paint(doing, self.painted_ns, now_ns);
        }
        if self.wants_memory {
            self.coarse.paint(Doing::Memory, self.painted_ns, now_ns);
            self.fine.paint(Doing::Memory, self.painted_ns, now_ns);
        }
        self.painted_ns = now_ns;
    }

    fn turn(&mut self, doing: Option<Doing>, at_ns: u64) {
        self.extend(at_ns);
        self.doing = doing;
    }

    fn want_memory(&mut self, wants: bool, at_ns: u64) {
        self.extend(at_ns);
        self.wants_memory = wants;
    }

    fn deny(&mut self, at_ns: u64) {
        self.denied_ns.push_back(at_ns);
        if self.denied_ns.len() > DENIALS {
            self.denied_ns.pop_front();
        }
    }

    /// What happened in `from_ns..to_ns`. A span shorter than [`BIN_NS`] is known for the last seconds only.
    pub fn cell(&self, from_ns: u64, to_ns: u64) -> Cell {
        let ring = match to_ns.saturating_sub(from_ns) {
            0..BIN_NS => &self.fine,
            _ => &self.coarse,
        };
        let [hold, wait, memory] = ring.shares(from_ns, to_ns);
        let denied = self
            .denied_ns
            .iter()
            .any(|at| (from_ns..to_ns).contains(at));
        Cell {
            hold,
            wait,
            memory,
            denied,
        }
    }
}

/// Every lane there is.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    lanes: FxHashMap<(Who, usize), Lane>,
    /// From when on we know what happened.
    since_ns: Option<u64>,
}

impl Lanes {
    /// Paints a sample's events and brings every lane up to its time.
    pub fn update(&mut self, sample: &Sample) {
        let first = sample
            .events
            .first()
            .map_or(sample.time_ns, |event| event.time_ns);
        self.since_ns.get_or_insert(first);
        let present: HashSet<Who> = sample.processes.iter().map(Who::of).collect();
        for event in &sample.events {
            self.event(event, &present, sample.time_ns);
        }
        for process in &sample.processes {
            for holding in &process.devices {
                let doing = match holding.lock.state {
                    LockState::Hold | LockState::Active => Some(Doing::Hold),
                    LockState::Wait | LockState::Back => Some(Doing::Wait),
                    LockState::Idle | LockState::Paused => None,
                };
                let key = (Who::of(process), holding.gpu);
                let wait = holding.memory_wait;
                if doing.is_none() && wait.is_none() && !self.lanes.contains_key(&key) {
                    continue;
                }
                let lane = self.lanes.entry(key).or_default();
                if lane.doing != doing {
                    lane.turn(doing, holding.lock.since_ns.max(1).min(sample.time_ns));
                }
                if lane.wants_memory != wait.is_some() {
                    let since = wait.map_or(sample.time_ns, |wait| wait.since_ns);
                    lane.want_memory(wait.is_some(), since.max(1).min(sample.time_ns));
                }
                lane.extend(sample.time_ns);
            }
        }
        self.lanes.retain(|(who, _), _| present.contains(who));
    }

    fn event(&mut self, event: &EventLine, present: &HashSet<Who>, now_ns: u64) {
        let (Some(slot), Some(gpu)) = (event.slot, event.gpu) else {
            return;
        };
        let who = Who::Slot(slot);
        if !present.contains(&who) {
            return;
        }
        let lane = self.lanes.entry((who, gpu)).or_default();
        // A damaged ring may say anything; nothing happens after now.
        let at_ns = event.time_ns.min(now_ns);
        match event.what {
            What::Wait | What::Back { .. } => lane.turn(Some(Doing::Wait), at_ns),
            What::Hold { .. } | What::Active { .. } => lane.turn(Some(Doing::Hold), at_ns),
            What::Release { .. } | What::Rest { .. } | What::Forced { .. } | What::Takeover => {
                lane.turn(None, at_ns);
            }
            What::Denial { .. } => lane.deny(at_ns),
            What::MemoryWait { .. } => lane.want_memory(true, at_ns),
            What::MemoryDone { .. } => lane.want_memory(false, at_ns),
            _ => {}
        }
    }

    /// The lane of `who` on device `gpu`, if anything ever happened in it.
    pub fn get(&self, who: Who, gpu: usize) -> Option<&Lane> {
        self.lanes.get(&(who, gpu))
    }

    /// How much of the last `window_ns` is known.
    pub fn known_ns(&self, now_ns: u64, window_ns: u64) -> u64 {
        let since = self.since_ns.unwrap_or(now_ns);
        now_ns.saturating_sub(since).min(window_ns)
    }

    /// How each process spent the last `window_ns` on each device, or as much of it as is known.
    pub fn spent(&self, now_ns: u64, window_ns: u64) -> FxHashMap<(Who, usize), Cell> {
        let known = self.known_ns(now_ns, window_ns).max(BIN_NS);
        // Whole bins only: the one in progress would count as half empty.
        let end = now_ns / BIN_NS * BIN_NS;
        let start = end.saturating_sub(known / BIN_NS * BIN_NS);
        let of = |lane: &Lane| lane.cell(start, end);
        self.lanes
            .iter()
            .map(|(key, lane)| (*key, of(lane)))
            .collect()
    }

    /// All lanes of a device.
    pub fn on(&self, gpu: usize) -> Vec<&Lane> {
        let on_it = self.lanes.iter().filter(|((_, on), _)| *on == gpu);
        on_it.map(|(_, lane)| lane).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn a_hold_is_painted_where_it_was_and_nowhere_else() {
        let mut lane = Lane::default();
        lane.turn(Some(Doing::Wait), 10 * S);
        lane.turn(Some(Doing::Hold), 11 * S);
        lane.turn(None, 12 * S);
        lane.extend(20 * S);
        let second = |s: u64| lane.cell(s * S, (s + 1) * S);
        assert_eq!((second(10).hold, second(10).wait), (0.0, 1.0));
        assert_eq!((second(11).hold, second(11).wait), (1.0, 0.0));
        assert_eq!((second(12).hold, second(12).wait), (0.0, 0.0));
    }

    #[test]
    fn waiting_for_memory_is_painted_beside_what_the_lock_does() {
        let mut lane = Lane::default();
        lane.turn(Some(Doing::Hold), 10 * S);
        lane.want_memory(true, 11 * S);
        lane.turn(None, 12 * S);
        lane.want_memory(false, 13 * S);
        lane.extend(20 * S);
        let second = |s: u64| lane.cell(s * S, (s + 1) * S);
        let shares = |cell: Cell| (cell.hold, cell.memory);
        assert_eq!(shares(second(10)), (1.0, 0.0));
        assert_eq!(shares(second(11)), (1.0, 1.0));
        assert_eq!(shares(second(12)), (0.0, 1.0));
        assert_eq!(shares(second(13)), (0.0, 0.0));
    }

    #[test]
    fn short_slices_add_up_to_their_share_and_are_seen_closely() {
        let mut lane = Lane::default();
        for slice in 0..100 {
            lane.turn(Some(Doing::Hold), 10 * S + slice * 10 * MS);
            lane.turn(Some(Doing::Wait), 10 * S + slice * 10 * MS + 5 * MS);
        }
        lane.extend(11 * S);
        let cell = lane.cell(10 * S, 11 * S);
        assert!((cell.hold - 0.5).abs() < 0.01, "{cell:?}");
        let close = |ms: u64| lane.cell(10 * S + ms * MS, 10 * S + (ms + 5) * MS);
        assert_eq!((close(500).hold, close(500).wait), (1.0, 0.0));
        assert_eq!((close(505).hold, close(505).wait), (0.0, 1.0));
    }

    #[test]
    fn an_event_older_than_what_is_painted_changes_nothing() {
        let mut lane = Lane::default();
        lane.turn(Some(Doing::Hold), 10 * S);
        lane.extend(12 * S);
        lane.turn(None, 11 * S);
        lane.turn(Some(Doing::Wait), 11 * S);
        lane.extend(12 * S);
        let cell = lane.cell(10 * S, 12 * S);
        assert_eq!((cell.hold, cell.wait), (1.0, 0.0));
    }
}
