//! Lock lanes: for each process and device, the shares of each moment spent holding, waiting, and waiting for memory.
//!
//! Events report changes; the state in each sample corrects errors left by lost events. The changes of the last seconds
//! are kept exactly, to show short slices turn by turn. Older ones are painted into bins of [`BIN_NS`] that reach back
//! two minutes.

mod columns;
mod lane;

use rustc_hash::{FxHashMap, FxHashSet};

use super::lengths::Lengths;
use super::timeline::POINT_NS;
use gpushare_sample::{EventLine, Histogram, LockState, Sample, What, Who};

pub use columns::Columns;
pub use lane::{Cell, Known};
use lane::{Does, Lane};

/// Time window over which shares of the lock are counted.
pub const WINDOW_NS: u64 = 20_000_000_000;
/// The width of a bin.
pub const BIN_NS: u64 = 125_000_000;
/// The width of the narrowest column.
pub const FINE_NS: u64 = 5_000_000;

/// The span that the shares and percentiles of a device cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its length.
    pub ns: u64,
    /// Set if it begins with an edit of the policy.
    pub since_edit: bool,
    /// The 99th percentile of the waits of all processes in it.
    pub wait_p99_ns: Option<u64>,
}

impl Span {
    /// Describes the span as a title does: `last 20 s`.
    pub fn words(self) -> String {
        let seconds = (self.ns + 500_000_000) / 1_000_000_000;
        match self.since_edit {
            true => format!("{seconds} s since the edit"),
            false => format!("last {seconds} s"),
        }
    }
}

/// The lanes of one process, by device number; a device without activity has none.
#[derive(Clone, Debug, Default)]
struct Own(Vec<Option<Lane>>);

impl Own {
    /// Returns the entry for one device of `devices`; a recording may name any number.
    fn place(&mut self, gpu: usize, devices: usize) -> Option<&mut Option<Lane>> {
        if gpu < devices && self.0.len() <= gpu {
            self.0.resize_with(devices, || None);
        }
        self.0.get_mut(gpu)
    }
}

/// All lanes.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    /// The lanes of each process in the newest sample.
    lanes: FxHashMap<Who, Own>,
    /// The time from which activity is known.
    since_ns: Option<u64>,
    /// The time up to which activity is known.
    now_ns: u64,
    /// Time of the last edit that changed how each device is shared; 0 for none.
    edited_ns: Vec<u64>,
}

impl Lanes {
    /// Paints a sample's events and brings every lane up to the sample's time.
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
                let lock = match holding.lock.state {
                    LockState::Hold | LockState::Active => Does::HOLD,
                    LockState::Wait | LockState::Back => Does::WAIT,
                    LockState::Idle | LockState::Paused => Does::NOTHING,
                };
                let wait = holding.memory_wait;
                let Some(place) = own.place(holding.gpu, devices) else {
                    continue;
                };
                let does = lock.and_memory(wait.is_some());
                if place.is_none() && does == Does::NOTHING {
                    continue;
                }
                let lane = place.get_or_insert_default();
                if lane.does == does {
                    continue;
                }
                let did = lane.does;
                let mut change = |does, since_ns: u64| {
                    let since_ns = since_ns.max(1).min(sample.time_ns);
                    lane.change(does, lane.when(since_ns, seen_ns));
                };
                change(did.and_lock(lock), holding.lock.since_ns);
                change(does, wait.map_or(sample.time_ns, |wait| wait.since_ns));
            }
        }
    }

    fn event(&mut self, event: &EventLine, devices: usize, seen_ns: u64) {
        if matches!(event.what, What::Edit { .. }) && event.slot.is_none() {
            return self.begin_span(event.gpu, devices, event.time_ns.min(self.now_ns));
        }
        let (Some(slot), Some(gpu)) = (event.slot, event.gpu) else {
            return;
        };
        let own = self.lanes.get_mut(&Who::Slot(slot));
        let Some(place) = own.and_then(|own| own.place(gpu, devices)) else {
            return;
        };
        let lane = place.get_or_insert_default();
        let edited_ns = self.edited_ns.get(gpu).copied().unwrap_or(0);
        lane.measure(event, edited_ns);
        // A damaged ring may hold any time; no event is newer than now.
        let at_ns = lane.when(event.time_ns.min(self.now_ns), seen_ns);
        let does = match event.what {
            What::Wait | What::Back { .. } => lane.does.and_lock(Does::WAIT),
            What::Hold { .. } | What::Active { .. } => lane.does.and_lock(Does::HOLD),
            What::Release { .. } | What::Rest { .. } | What::Forced { .. } | What::Takeover => {
                lane.does.and_lock(Does::NOTHING)
            }
            What::MemoryWait { .. } => lane.does.and_memory(true),
            What::MemoryDone { .. } => lane.does.and_memory(false),
            What::Denial { .. } => return lane.deny(at_ns),
            _ => return,
        };
        lane.change(does, at_ns);
    }

    /// Returns the lane of `who` on device `gpu`, if it has any activity.
    pub fn get(&self, who: Who, gpu: usize) -> Option<Known<'_>> {
        let lane = self.lanes.get(&who)?.0.get(gpu)?.as_ref()?;
        let now_ns = self.now_ns;
        Some(Known { lane, now_ns })
    }

    /// Returns the part of the last `window_ns` that is known.
    pub fn known_ns(&self, window_ns: u64) -> u64 {
        let since = self.since_ns.unwrap_or(self.now_ns);
        self.now_ns.saturating_sub(since).min(window_ns)
    }

    /// Returns the begin and end of the last `window_ns`, or of the part that is known.
    fn window(&self, window_ns: u64) -> (u64, u64) {
        let known = self.known_ns(window_ns).max(BIN_NS);
        // Whole bins only: the current one would count as half empty.
        let end = self.now_ns / BIN_NS * BIN_NS;
        (end.saturating_sub(known / BIN_NS * BIN_NS), end)
    }

    /// Begins a new span for one device, or for all: what was measured before an edit says nothing about what follows it.
    fn begin_span(&mut self, gpu: Option<usize>, devices: usize, at_ns: u64) {
        let gpus = match gpu {
            Some(gpu) => gpu..devices.min(gpu.saturating_add(1)),
            None => 0..devices,
        };
        self.edited_ns.resize(devices, 0);
        for gpu in gpus {
            self.edited_ns[gpu] = at_ns;
            let lanes = self.lanes.values_mut();
            for lane in lanes.filter_map(|own| own.0.get_mut(gpu)?.as_mut()) {
                lane.lengths.iter_mut().for_each(Lengths::clear);
            }
        }
    }

    /// Returns the time since the last edit that changed how a device is shared; `None` for none.
    fn since_edit_ns(&self, gpu: usize) -> Option<u64> {
        let edited_ns = self.edited_ns.get(gpu).filter(|at| **at > 0)?;
        Some(self.now_ns.saturating_sub(*edited_ns))
    }

    /// Reports whether a device's span begins with an edit.
    pub fn is_since_edit(&self, gpu: usize) -> bool {
        let since = self.since_edit_ns(gpu);
        since.is_some_and(|since| since < self.known_ns(WINDOW_NS))
    }

    /// Returns the length of the span that shares and percentiles of a device cover: the last [`WINDOW_NS`], the part that is
    /// known, or the time since the last edit of its policy.
    pub fn span_ns(&self, gpu: usize) -> u64 {
        let known = self.known_ns(WINDOW_NS);
        known.min(self.since_edit_ns(gpu).unwrap_or(known))
    }

    /// Returns the activity of a process on a device in the device's span.
    pub fn spent(&self, who: Who, gpu: usize) -> Cell {
        self.of_last(self.span_ns(gpu), who, gpu)
    }

    /// Returns the lengths of the holds and the waits of a process that ended in the device's span, as of the last measurement.
    pub fn lengths(&self, who: Who, gpu: usize) -> [Histogram; 2] {
        let mut both = <[Histogram; 2]>::default();
        if let Some(known) = self.get(who, gpu) {
            let lengths = known.lane.lengths.iter();
            lengths
                .zip(&mut both)
                .for_each(|(lengths, all)| lengths.add_to(all));
        }
        both
    }

    /// Discards the lengths of holds and waits that ended before the device's span, and returns the others; `None` for a process
    /// without activity.
    pub(super) fn measured(&mut self, who: Who, gpu: usize) -> Option<&[Lengths; 2]> {
        let from_ns = self.now_ns.saturating_sub(self.span_ns(gpu));
        let lane = self.lanes.get_mut(&who)?.0.get_mut(gpu)?.as_mut()?;
        let lengths = lane.lengths.iter_mut();
        lengths.for_each(|lengths| lengths.forget_before(from_ns));
        Some(&lane.lengths)
    }

    /// Returns the activity of a process in the last point of a history.
    pub fn lately(&self, who: Who, gpu: usize) -> Cell {
        self.of_last(POINT_NS, who, gpu)
    }

    /// Returns the activity of a process on a device in the last `window_ns`, or in the part that is known.
    pub fn of_last(&self, window_ns: u64, who: Who, gpu: usize) -> Cell {
        let (from_ns, to_ns) = self.window(window_ns);
        let lane = self.get(who, gpu);
        lane.map(|lane| lane.cell(from_ns, to_ns))
            .unwrap_or_default()
    }
}
