//! Lock lanes: for each process and device, how much of each moment went to holding and waiting.
//!
//! Time is cut into bins of [`BIN_NS`], counted from boot, so all lanes share one axis. Events paint exact spans; the
//! state in each sample corrects what lost events left wrong. A bin keeps time in 2 µs steps.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::sample::{EventLine, LockState, Sample, What};

use super::Who;

/// The width of a bin.
pub const BIN_NS: u64 = 125_000_000;
/// How many bins a lane remembers: two and a half minutes.
const BINS: usize = 1200;
const STEP_NS: u64 = 2_000;

/// What happened in one bin, or in the bins of one screen column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Share of the time it held the lock, 0 to 1.
    pub hold: f32,
    /// Share of the time it waited.
    pub wait: f32,
    /// Allocations refused.
    pub denials: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    hold: u16,
    wait: u16,
    denials: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Hold,
    Wait,
}

/// One process on one device.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// The number of `bins[0]`.
    first: u64,
    bins: VecDeque<Bin>,
    doing: Option<Doing>,
    /// Up to where the bins are filled; what is older is never painted again.
    painted_ns: u64,
}

impl Lane {
    fn bin(&mut self, number: u64) -> Option<&mut Bin> {
        if self.bins.is_empty() {
            self.first = number;
        }
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        if at >= self.bins.len() + BINS {
            self.bins.clear();
            self.first = number;
            return self.bin(number);
        }
        while self.bins.len() <= at {
            self.bins.push_back(Bin::default());
        }
        while self.bins.len() > BINS {
            self.bins.pop_front();
            self.first += 1;
        }
        self.bins
            .get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn paint(&mut self, doing: Doing, from_ns: u64, to_ns: u64) {
        let oldest = to_ns.saturating_sub(BIN_NS * BINS as u64);
        let mut from = from_ns.max(oldest);
        while from < to_ns {
            let number = from / BIN_NS;
            let to = to_ns.min((number + 1) * BIN_NS);
            let steps = u16::try_from((to - from) / STEP_NS).unwrap_or(u16::MAX);
            if let Some(bin) = self.bin(number) {
                let word = match doing {
                    Doing::Hold => &mut bin.hold,
                    Doing::Wait => &mut bin.wait,
                };
                *word = word.saturating_add(steps);
            }
            from = to;
        }
    }

    /// Paints what it does up to `now_ns`.
    fn extend(&mut self, now_ns: u64) {
        if now_ns <= self.painted_ns {
            return;
        }
        if let Some(doing) = self.doing {
            self.paint(doing, self.painted_ns, now_ns);
        }
        self.painted_ns = now_ns;
    }

    fn turn(&mut self, doing: Option<Doing>, at_ns: u64) {
        self.extend(at_ns);
        self.doing = doing;
    }

    fn deny(&mut self, at_ns: u64) {
        if let Some(bin) = self.bin(at_ns / BIN_NS) {
            bin.denials = bin.denials.saturating_add(1);
        }
    }

    /// The `count` bins from `number` on, together.
    pub fn cell(&self, number: u64, count: u64) -> Cell {
        let mut sum = Cell::default();
        for number in number..number + count {
            let at = number
                .checked_sub(self.first)
                .and_then(|at| usize::try_from(at).ok());
            let Some(bin) = at.and_then(|at| self.bins.get(at)) else {
                continue;
            };
            sum.hold += f32::from(bin.hold);
            sum.wait += f32::from(bin.wait);
            sum.denials += u32::from(bin.denials);
        }
        let whole = (count * BIN_NS / STEP_NS) as f32;
        Cell {
            hold: (sum.hold / whole).min(1.0),
            wait: (sum.wait / whole).min(1.0),
            denials: sum.denials,
        }
    }
}

/// Every lane there is.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    lanes: HashMap<(Who, usize), Lane>,
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
            self.event(event, &present);
        }
        for process in &sample.processes {
            for holding in &process.devices {
                let doing = match holding.lock.state {
                    LockState::Hold => Some(Doing::Hold),
                    LockState::Wait => Some(Doing::Wait),
                    LockState::Idle | LockState::Paused => None,
                };
                let key = (Who::of(process), holding.gpu);
                if doing.is_none() && !self.lanes.contains_key(&key) {
                    continue;
                }
                let lane = self.lanes.entry(key).or_default();
                if lane.doing != doing {
                    lane.turn(doing, holding.lock.since_ns.clamp(1, sample.time_ns));
                }
                lane.extend(sample.time_ns);
            }
        }
        self.lanes.retain(|(who, _), _| present.contains(who));
    }

    fn event(&mut self, event: &EventLine, present: &HashSet<Who>) {
        let (Some(slot), Some(gpu)) = (event.slot, event.gpu) else {
            return;
        };
        let who = Who::Slot(slot);
        if !present.contains(&who) {
            return;
        }
        let lane = self.lanes.entry((who, gpu)).or_default();
        match event.what {
            What::Wait => lane.turn(Some(Doing::Wait), event.time_ns),
            What::Hold { .. } => lane.turn(Some(Doing::Hold), event.time_ns),
            What::Release { .. } | What::Forced { .. } | What::Takeover => {
                lane.turn(None, event.time_ns)
            }
            What::Denial { .. } => lane.deny(event.time_ns),
            _ => {}
        }
    }

    /// The lane of `who` on device `gpu`, if anything ever happened in it.
    pub fn get(&self, who: Who, gpu: usize) -> Option<&Lane> {
        self.lanes.get(&(who, gpu))
    }

    /// How each process spent the last `window_ns` on each device, or as much of it as is known.
    pub fn spent(&self, now_ns: u64, window_ns: u64) -> HashMap<(Who, usize), Cell> {
        let since = self.since_ns.unwrap_or(now_ns);
        let known = now_ns.saturating_sub(since).min(window_ns);
        let bins = (known / BIN_NS).max(1);
        let first = (now_ns / BIN_NS).saturating_sub(bins);
        let of = |lane: &Lane| lane.cell(first, bins);
        self.lanes
            .iter()
            .map(|(key, lane)| (*key, of(lane)))
            .collect()
    }

    /// How many waited on a device in the `count` bins from `number` on, on average.
    pub fn queue(&self, gpu: usize, number: u64, count: u64) -> f32 {
        let on_it = self.lanes.iter().filter(|((_, on), _)| *on == gpu);
        on_it.map(|(_, lane)| lane.cell(number, count).wait).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_hold_is_painted_where_it_was_and_nowhere_else() {
        let mut lane = Lane::default();
        lane.turn(Some(Doing::Wait), 10 * S);
        lane.turn(Some(Doing::Hold), 11 * S);
        lane.turn(None, 12 * S);
        lane.extend(20 * S);
        let second = |s: u64| lane.cell(s * S / BIN_NS, S / BIN_NS);
        assert_eq!((second(10).hold, second(10).wait), (0.0, 1.0));
        assert_eq!((second(11).hold, second(11).wait), (1.0, 0.0));
        assert_eq!((second(12).hold, second(12).wait), (0.0, 0.0));
    }

    #[test]
    fn short_slices_add_up_to_their_share() {
        let mut lane = Lane::default();
        for slice in 0..200 {
            lane.turn(Some(Doing::Hold), 10 * S + slice * 5_000_000);
            lane.turn(Some(Doing::Wait), 10 * S + slice * 5_000_000 + 1_000_000);
        }
        lane.extend(11 * S);
        let cell = lane.cell(10 * S / BIN_NS, 8);
        assert!((cell.hold - 0.2).abs() < 0.01, "{cell:?}");
        assert!((cell.wait - 0.8).abs() < 0.01, "{cell:?}");
    }

    #[test]
    fn a_lane_forgets_the_far_past_and_survives_a_long_silence() {
        let mut lane = Lane::default();
        lane.paint(Doing::Hold, 0, 1000 * S);
        assert!(lane.bins.len() <= BINS);
        lane.paint(Doing::Hold, 100_000 * S, 100_001 * S);
        assert!(lane.bins.len() <= BINS);
        assert_eq!(lane.cell(100_000 * S / BIN_NS, 8).hold, 1.0);
        assert_eq!(lane.cell(0, 8), Cell::default());
    }

    #[test]
    fn an_event_older_than_what_is_painted_changes_nothing() {
        let mut lane = Lane::default();
        lane.turn(Some(Doing::Hold), 10 * S);
        lane.extend(12 * S);
        lane.turn(None, 11 * S);
        lane.turn(Some(Doing::Wait), 11 * S);
        lane.extend(12 * S);
        assert_eq!(lane.cell(10 * S / BIN_NS, 16).hold, 1.0);
        assert_eq!(lane.cell(10 * S / BIN_NS, 16).wait, 0.0);
    }
}
