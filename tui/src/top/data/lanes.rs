//! Lock lanes: for each process and device, how much of each moment went to holding, to waiting, and to waiting for memory.
//!
//! Events paint exact spans; the state in each sample corrects what lost events left wrong. Two minutes are kept in bins
//! of [`BIN_NS`], and the last seconds in [`FINE_NS`] as well, to see short slices turn by turn.

use std::collections::VecDeque;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::ring::{Scale, Track};
use super::timeline::POINT_NS;
use crate::sample::{EventLine, LockState, Sample, What, Who};

/// Shares of the lock are counted over this long.
pub const WINDOW_NS: u64 = 20_000_000_000;
/// The width of a bin.
pub const BIN_NS: u64 = 125_000_000;
/// The width of a bin for looking closely.
pub const FINE_NS: u64 = 5_000_000;
const COARSE: Scale = Scale {
    bin_ns: BIN_NS,
    keep: 1024,
};
const FINE: Scale = Scale {
    bin_ns: FINE_NS,
    keep: 512,
};
const _: () = assert!(COARSE.is_even() && FINE.is_even());
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

/// What a process does with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Hold,
    Wait,
}

/// How much went to holding, to waiting and to waiting for memory.
type Tracks = [Track; 3];

/// One process on one device.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// The past in wide bins and in narrow ones. It lies elsewhere, because each sample asks every lane for what it does now.
    past: Box<Past>,
    denied_ns: VecDeque<u64>,
    doing: Option<Doing>,
    /// An allocation waits for memory, whatever the lock.
    wants_memory: bool,
    /// Up to where the tracks are painted; what is older is never painted again. Since then it does the same thing.
    painted_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Past {
    coarse: Tracks,
    fine: Tracks,
}

impl Lane {
    /// What it does now, in the order of the tracks.
    fn does(&self) -> [bool; 3] {
        let locks = |doing| self.doing == Some(doing);
        [locks(Doing::Hold), locks(Doing::Wait), self.wants_memory]
    }

    /// When a change happened that is told of now. What earlier samples showed stands, up to `seen_ns`.
    fn when(&self, at_ns: u64, seen_ns: u64) -> u64 {
        match self.painted_ns {
            0 => at_ns,
            _ => at_ns.max(seen_ns),
        }
    }

    /// Paints what it did up to `now_ns`. Only a change asks for it: a process that goes on as it did costs nothing.
    fn extend(&mut self, now_ns: u64) {
        if now_ns <= self.painted_ns {
            return;
        }
        let does = self.does();
        let Past { coarse, fine } = &mut *self.past;
        for (scale, tracks) in [(COARSE, coarse), (FINE, fine)] {
            let active = tracks.iter_mut().zip(does).filter(|(_, does)| *does);
            active.for_each(|(track, _)| track.paint(scale, self.painted_ns, now_ns));
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
}

/// A lane as it is known up to a moment.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    lane: &'a Lane,
    now_ns: u64,
}

impl Known<'_> {
    /// What happened in `from_ns..to_ns`. A span shorter than [`BIN_NS`] is known for the last seconds only.
    pub fn cell(&self, from_ns: u64, to_ns: u64) -> Cell {
        let [hold, wait, memory] = [0, 1, 2].map(|track| self.share(track, from_ns, to_ns));
        let mut denials = self.lane.denied_ns.iter();
        Cell {
            hold,
            wait,
            memory,
            denied: denials.any(|at| (from_ns..to_ns).contains(at)),
        }
    }

    /// How much of it went to waiting.
    pub fn wait(&self, from_ns: u64, to_ns: u64) -> f32 {
        self.share(1, from_ns, to_ns)
    }

    /// How much of it went to what one of the tracks is about.
    fn share(&self, track: usize, from_ns: u64, to_ns: u64) -> f32 {
        match to_ns.saturating_sub(from_ns) {
            0..BIN_NS => self.of_scale(FINE, &self.lane.past.fine, track, from_ns..to_ns),
            _ => self.of_scale(COARSE, &self.lane.past.coarse, track, from_ns..to_ns),
        }
    }

    /// Inlined, so that the widths of the bins are numbers of the program: a frame asks for thousands of these.
    #[inline]
    fn of_scale(&self, scale: Scale, tracks: &Tracks, track: usize, span: Range<u64>) -> f32 {
        let does = self.lane.does()[track];
        if !does && tracks[track].is_empty() {
            return 0.0;
        }
        let bins = scale.bins(span.start, span.end);
        let [from, to] = [bins.start, bins.end].map(|bin| bin * scale.bin_ns);
        let whole = to.saturating_sub(from).max(scale.bin_ns) as f32;
        // What goes on is not painted yet.
        let open = to.min(self.now_ns);
        let open = open.saturating_sub(from.max(self.lane.painted_ns));
        let painted = tracks[track].steps(bins) * scale.step_ns();
        ((painted + if does { open } else { 0 }) as f32 / whole).min(1.0)
    }
}

/// Those of one process, by the number of the device; where nothing ever happened there is none.
#[derive(Clone, Debug, Default)]
struct Own(Vec<Option<Lane>>);

impl Own {
    /// Its place for one of so many devices; a recording may name any number.
    fn place(&mut self, gpu: usize, devices: usize) -> Option<&mut Option<Lane>> {
        if gpu < devices && self.0.len() <= gpu {
            self.0.resize_with(devices, || None);
        }
        self.0.get_mut(gpu)
    }
}

/// Every lane there is.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    /// Of each process that was there in the newest sample.
    lanes: FxHashMap<Who, Own>,
    /// From when on we know what happened.
    since_ns: Option<u64>,
    /// Up to when.
    now_ns: u64,
}

impl Lanes {
    /// Paints a sample's events and brings every lane up to its time.
    pub fn update(&mut self, sample: &Sample) {
        let first = sample
            .events
            .first()
            .map_or(sample.time_ns, |event| event.time_ns);
        self.since_ns.get_or_insert(first);
        let seen_ns = std::mem::replace(&mut self.now_ns, sample.time_ns);
        let devices = sample.devices.len();
        for process in &sample.processes {
            self.lanes.entry(Who::of(process)).or_default();
        }
        if self.lanes.len() > sample.processes.len() {
            let present: FxHashSet<Who> = sample.processes.iter().map(Who::of).collect();
            self.lanes.retain(|who, _| present.contains(who));
        }
        for event in &sample.events {
            self.event(event, devices, seen_ns);
        }
        for process in &sample.processes {
            let Some(own) = self.lanes.get_mut(&Who::of(process)) else {
                continue;
            };
            for holding in &process.devices {
                let doing = match holding.lock.state {
                    LockState::Hold | LockState::Active => Some(Doing::Hold),
                    LockState::Wait | LockState::Back => Some(Doing::Wait),
                    LockState::Idle | LockState::Paused => None,
                };
                let wait = holding.memory_wait;
                let Some(place) = own.place(holding.gpu, devices) else {
                    continue;
                };
                if place.is_none() && doing.is_none() && wait.is_none() {
                    continue;
                }
                let lane = place.get_or_insert_default();
                if lane.doing != doing {
                    let since = holding.lock.since_ns.max(1).min(sample.time_ns);
                    lane.turn(doing, lane.when(since, seen_ns));
                }
                if lane.wants_memory != wait.is_some() {
                    let since = wait.map_or(sample.time_ns, |wait| wait.since_ns);
                    let since = since.max(1).min(sample.time_ns);
                    lane.want_memory(wait.is_some(), lane.when(since, seen_ns));
                }
            }
        }
    }

    fn event(&mut self, event: &EventLine, devices: usize, seen_ns: u64) {
        let (Some(slot), Some(gpu)) = (event.slot, event.gpu) else {
            return;
        };
        let own = self.lanes.get_mut(&Who::Slot(slot));
        let Some(place) = own.and_then(|own| own.place(gpu, devices)) else {
            return;
        };
        let lane = place.get_or_insert_default();
        // A damaged ring may say anything; nothing happens after now.
        let at_ns = lane.when(event.time_ns.min(self.now_ns), seen_ns);
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
    pub fn get(&self, who: Who, gpu: usize) -> Option<Known<'_>> {
        let lane = self.lanes.get(&who)?.0.get(gpu)?.as_ref()?;
        let now_ns = self.now_ns;
        Some(Known { lane, now_ns })
    }

    /// How much of the last `window_ns` is known.
    pub fn known_ns(&self, window_ns: u64) -> u64 {
        let since = self.since_ns.unwrap_or(self.now_ns);
        self.now_ns.saturating_sub(since).min(window_ns)
    }

    /// The last `window_ns`, or as much of it as is known.
    fn window(&self, window_ns: u64) -> (u64, u64) {
        let known = self.known_ns(window_ns).max(BIN_NS);
        // Whole bins only: the one in progress would count as half empty.
        let end = self.now_ns / BIN_NS * BIN_NS;
        (end.saturating_sub(known / BIN_NS * BIN_NS), end)
    }

    /// How a process spent the last [`WINDOW_NS`] on a device, or as much of it as is known.
    pub fn spent(&self, who: Who, gpu: usize) -> Cell {
        self.of_last(WINDOW_NS, who, gpu)
    }

    /// How it spent the time of the last point of a history.
    pub fn lately(&self, who: Who, gpu: usize) -> Cell {
        self.of_last(POINT_NS, who, gpu)
    }

    fn of_last(&self, window_ns: u64, who: Who, gpu: usize) -> Cell {
        let (from_ns, to_ns) = self.window(window_ns);
        let lane = self.get(who, gpu);
        lane.map_or(Cell::default(), |lane| lane.cell(from_ns, to_ns))
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

    #[test]
    fn a_hold_is_painted_where_it_was_and_nowhere_else() {
        let mut lane = Lane::default();
        lane.turn(Some(Doing::Wait), 10 * S);
        lane.turn(Some(Doing::Hold), 11 * S);
        lane.turn(None, 12 * S);
        let second = |s: u64| at(&lane, 20 * S).cell(s * S, (s + 1) * S);
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
        let second = |s: u64| at(&lane, 20 * S).cell(s * S, (s + 1) * S);
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
        let known = at(&lane, 11 * S);
        let cell = known.cell(10 * S, 11 * S);
        assert!((cell.hold - 0.5).abs() < 0.01, "{cell:?}");
        let close = |ms: u64| known.cell(10 * S + ms * MS, 10 * S + (ms + 5) * MS);
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
        let cell = at(&lane, 12 * S).cell(10 * S, 12 * S);
        assert_eq!((cell.hold, cell.wait), (1.0, 0.0));
    }

    #[test]
    fn what_goes_on_counts_up_to_now_and_not_beyond() {
        let mut lane = Lane::default();
        lane.turn(Some(Doing::Wait), 10 * S);
        let second = |s: u64| at(&lane, 12 * S + S / 2).cell(s * S, (s + 1) * S).wait;
        assert_eq!([9, 10, 11, 12, 13].map(second), [0.0, 1.0, 1.0, 0.5, 0.0]);
        lane.turn(Some(Doing::Hold), 1000 * S);
        let second = |s: u64| at(&lane, 1001 * S).cell(s * S, (s + 1) * S);
        assert_eq!((second(999).wait, second(1000).hold), (1.0, 1.0));
    }
}
