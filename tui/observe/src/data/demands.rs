//! The work that each process had for a device, and the time between: what [`forecast`](shm_layout::lock::forecast) needs.
//!
//! Work that a turn did not end goes on in the next one. So a process that always wants the device has work without an end.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::lanes::WINDOW_NS;
use gpushare_sample::{Reason, Sample, What, Who};
use shm_layout::lock::{forecast::Burst, order::AWAY_NS};

/// Maximum number of bursts kept for a process.
const KEPT: usize = 512;

/// The work of one process on one device.
#[derive(Clone, Debug, Default)]
struct Past {
    /// Time since which it wants the device at times.
    since_ns: u64,
    /// Each burst with the time at which the next one began, oldest first.
    bursts: VecDeque<(u64, Burst)>,
    /// Work since then.
    work_ns: u64,
    /// Time of the last release.
    released_ns: u64,
    /// Set if the process then had no more work.
    is_done: bool,
}

impl Past {
    /// The process wants the device since this time, and has it.
    fn arrive(&mut self, at_ns: u64) {
        let gap_ns = at_ns.saturating_sub(self.released_ns);
        // A process that was away had nothing to do, whatever ended its turn.
        if (self.is_done || gap_ns > AWAY_NS) && self.work_ns > 0 {
            let work_ns = std::mem::take(&mut self.work_ns);
            self.bursts.push_back((at_ns, Burst { work_ns, gap_ns }));
            if self.bursts.len() > KEPT {
                self.bursts.pop_front();
            }
        }
    }

    fn release(&mut self, at_ns: u64, held_ns: u64, is_done: bool) {
        (self.released_ns, self.is_done) = (at_ns, is_done);
        self.work_ns = self.work_ns.saturating_add(held_ns);
    }

    /// Returns the bursts of the window before `now_ns`, with the one under way.
    fn bursts(&self, now_ns: u64) -> Vec<Burst> {
        let from_ns = now_ns.saturating_sub(WINDOW_NS);
        let recent = self.bursts.iter().filter(|(at_ns, _)| *at_ns >= from_ns);
        let mut bursts: Vec<Burst> = recent.map(|(_, burst)| *burst).collect();
        let count = bursts.len() as u64;
        let mean = |of: fn(&Burst) -> u64| bursts.iter().map(of).sum::<u64>().checked_div(count);
        match mean(|burst| burst.work_ns).zip(mean(|burst| burst.gap_ns)) {
            None if self.released_ns < from_ns => {}
            None => bursts.push(Burst {
                work_ns: Burst::ENDLESS,
                gap_ns: 0,
            }),
            // The work under way takes longer than the others.
            Some((work_ns, gap_ns)) if self.work_ns > work_ns => bursts.push(Burst {
                work_ns: self.work_ns,
                gap_ns,
            }),
            Some(_) => {}
        }
        bursts
    }
}

/// The work of all processes.
#[derive(Clone, Debug, Default)]
pub struct Demands(FxHashMap<(Who, usize), Past>);

impl Demands {
    /// Adds the turns of a sample's events.
    pub fn update(&mut self, sample: &Sample) {
        for event in &sample.events {
            let (Some(slot), Some(gpu)) = (event.slot, event.gpu) else {
                continue;
            };
            let past = match event.what {
                What::Hold { .. } | What::Release { .. } | What::Forced { .. } => {
                    let new = || Past {
                        since_ns: event.time_ns,
                        ..Past::default()
                    };
                    let place = self.0.entry((Who::Slot(slot), gpu));
                    place.or_insert_with(new)
                }
                _ => continue,
            };
            match event.what {
                What::Hold { waited_ns } => past.arrive(event.time_ns.saturating_sub(waited_ns)),
                What::Release { reason, held_ns } => {
                    let is_done = matches!(reason, Reason::Sync | Reason::Idle | Reason::Explicit);
                    past.release(event.time_ns, held_ns, is_done);
                }
                What::Forced { held_ns } => past.release(event.time_ns, held_ns, false),
                _ => {}
            }
        }
        if self.0.len() > sample.processes.len() {
            self.0.retain(|(who, _), _| {
                let mut processes = sample.processes.iter();
                processes.any(|process| Who::of(process) == *who)
            });
        }
    }

    /// Returns the time of the first turn of a process on a device that was seen.
    pub fn since_ns(&self, who: Who, gpu: usize) -> Option<u64> {
        self.0.get(&(who, gpu)).map(|past| past.since_ns)
    }

    /// Returns the recent bursts of a process on a device; empty if it did not want the device.
    pub fn bursts(&self, who: Who, gpu: usize, now_ns: u64) -> Vec<Burst> {
        let past = self.0.get(&(who, gpu));
        past.map_or_else(Vec::new, |past| past.bursts(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Plays turns of `held` that each follow a gap: (gap, held, whether the work is done).
    fn past(turns: &[(u64, u64, bool)]) -> (Past, u64) {
        let (mut past, mut now) = (Past::default(), 1000 * MS);
        for (gap, held, is_done) in turns {
            now += gap * MS;
            past.arrive(now);
            now += held * MS;
            past.release(now, held * MS, *is_done);
        }
        (past, now)
    }

    #[test]
    fn work_that_a_turn_did_not_end_goes_on_in_the_next_one() {
        let (past, now) = past(&[(1, 5, false), (1, 5, true), (50, 3, true), (30, 1, true)]);
        let bursts = past.bursts(now);
        let burst = |work_ms, gap_ms| Burst {
            work_ns: work_ms * MS,
            gap_ns: gap_ms * MS,
        };
        assert_eq!(bursts, [burst(10, 50), burst(3, 30)]);
        assert_eq!(past.bursts(now + 2 * WINDOW_NS), [], "long ago");
    }

    #[test]
    fn a_process_that_always_wants_the_device_has_work_without_an_end() {
        let (past, now) = past(&[(0, 5, false); 100]);
        let endless = Burst {
            work_ns: Burst::ENDLESS,
            gap_ns: 0,
        };
        assert_eq!(past.bursts(now), [endless]);
    }
}
