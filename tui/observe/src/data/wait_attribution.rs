//! Wait attribution: waits and blockers, since the processes began and recently.
//!
//! The segment lists, for each process and device, the holders it waited for longest and for how long. The recent part
//! is computed from marks: copies of those sums made every second. The one that is nearest to the window's begin is subtracted.

use std::collections::VecDeque;

use gpushare_sample::{Holding, ProcessSample, Sample, SlotId};

use super::lanes::WINDOW_NS;
use gpushare_sample::Who;
use rustc_hash::FxHashMap;

/// Time between two marks. The window is this exact, as other figures of the same screen cover [`WINDOW_NS`].
const STEP_NS: u64 = WINDOW_NS / 20;

/// The sums of one process on one device at one moment.
#[derive(Clone, Debug, Default)]
struct Sums {
    waited_ns: u64,
    behind: Box<[(SlotId, u64)]>,
}

#[derive(Clone, Debug, Default)]
struct Mark {
    time_ns: u64,
    sums: FxHashMap<(Who, usize), Sums>,
}

/// The marks from which recent waits are computed.
#[derive(Clone, Debug, Default)]
pub struct WaitAttribution {
    /// Oldest first, at most [`WINDOW_NS`] and half a step old.
    marks: VecDeque<Mark>,
}

/// The cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blocker {
    /// A process that still exists.
    Here(Who),
    /// Processes that have exited.
    Gone,
    /// No single process: the waiter's own cap, a hand-off, or many short holders.
    Other,
}

/// The blockers of one process, and the time waited for each.
type Behind = Vec<(Blocker, u64)>;

/// The waits of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The waiting process.
    pub who: Who,
    /// Total time waited.
    pub waited_ns: u64,
    /// Time waited for each of [`Waits::columns`].
    pub behind: Vec<u64>,
}

/// A pair of processes: one waited, the other held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The waiting process.
    pub who: Who,
    /// The holder.
    pub behind: Who,
    /// Time waited.
    pub ns: u64,
    /// Share of all the waits of `who`, 0 to 1.
    pub share: f64,
}

/// The waits on one device's lock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    /// Length of the time window; `None` since each process began.
    pub span_ns: Option<u64>,
    /// The blockers, the longest waits first.
    pub columns: Vec<Blocker>,
    /// The waiting processes, the longest waits first.
    pub lines: Vec<Line>,
}

impl WaitAttribution {
    /// Discards the marks: the recent waits begin now.
    pub fn begin_span(&mut self) {
        self.marks.clear();
    }

    /// Adds the next sample.
    pub fn update(&mut self, sample: &Sample) {
        let now_ns = sample.time_ns;
        // A clock that went back invalidates every mark.
        self.marks.retain(|mark| mark.time_ns <= now_ns);
        // Marks before the one that is nearest to the window's begin are not needed.
        while self
            .marks
            .get(1)
            .is_some_and(|mark| now_ns - mark.time_ns >= WINDOW_NS - STEP_NS / 2)
        {
            self.marks.pop_front();
        }
        let newest = self.marks.back().map(|mark| mark.time_ns);
        if newest.is_some_and(|at| now_ns - at < STEP_NS) {
            return;
        }
        let sums = sample.processes.iter().flat_map(|process| {
            let who = Who::of(process);
            let waited = process.devices.iter().filter(|h| h.lock.waited_ns > 0);
            waited.map(move |holding| {
                let sums = Sums {
                    waited_ns: holding.lock.waited_ns,
                    behind: holding.lock.waited_for.as_slice().into(),
                };
                ((who, holding.gpu), sums)
            })
        });
        let mark = Mark {
            time_ns: now_ns,
            sums: sums.collect(),
        };
        self.marks.push_back(mark);
    }

    /// Returns the process that a process recently waited for most on one device, and its share of the waits.
    pub fn longest(
        &self,
        sample: &Sample,
        process: &ProcessSample,
        holding: &Holding,
    ) -> Option<(SlotId, f64)> {
        let mark = self
            .marks
            .front()
            .filter(|mark| mark.time_ns < sample.time_ns);
        let before = mark.and_then(|mark| mark.sums.get(&(Who::of(process), holding.gpu)));
        let since = |slot: SlotId, ns: u64| {
            let then = before.map_or(0, |sums| earlier(&sums.behind, slot));
            ns.checked_sub(then).unwrap_or(ns)
        };
        let waits = holding
            .lock
            .waited_for
            .iter()
            .map(|(slot, ns)| (*slot, since(*slot, *ns)));
        let (slot, ns) = waits.max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0)?;
        let then = before.map_or(0, |sums| sums.waited_ns);
        let waited_ns = holding.lock.waited_ns.saturating_sub(then).max(ns);
        Some((slot, ns as f64 / waited_ns as f64))
    }

    /// Returns the waits on the device `gpu`: those of the last seconds if `lately`, else all.
    pub fn waits(&self, sample: &Sample, gpu: usize, lately: bool) -> Waits {
        let mark = self
            .marks
            .front()
            .filter(|mark| lately && mark.time_ns < sample.time_ns);
        let managed = sample
            .holdings(gpu)
            .filter(|(process, _)| process.is_managed());
        let mut lines: Vec<(Who, u64, Behind)> = Vec::new();
        let mut sums: FxHashMap<Blocker, u64> = FxHashMap::default();
        for (process, holding) in managed {
            let who = Who::of(process);
            let before = mark.and_then(|mark| mark.sums.get(&(who, gpu)));
            let lock = &holding.lock;
            let waited_ns = lock
                .waited_ns
                .saturating_sub(before.map_or(0, |sums| sums.waited_ns));
            let mut behind = Behind::new();
            for (slot, ns) in &lock.waited_for {
                let then = before.map_or(0, |sums| earlier(&sums.behind, *slot));
                // A smaller sum means that the holder was dropped from the list and counted anew.
                let ns = ns.checked_sub(then).unwrap_or(*ns);
                add(&mut behind, blocker(sample, *slot), ns);
            }
            let told = behind
                .iter()
                .map(|(_, ns)| *ns)
                .fold(0, u64::saturating_add);
            add(&mut behind, Blocker::Other, waited_ns.saturating_sub(told));
            for (blocker, ns) in &behind {
                let sum = sums.entry(*blocker).or_default();
                *sum = sum.saturating_add(*ns);
            }
            lines.push((who, waited_ns.max(told), behind));
        }
        lines.sort_by_key(|(who, waited_ns, _)| (std::cmp::Reverse(*waited_ns), *who));
        let all = sums.values().copied().fold(0, u64::saturating_add);
        // Rounding and waits in progress need no column.
        sums.retain(|blocker, ns| *ns > 0 && (*blocker != Blocker::Other || *ns > all / 50));
        let mut columns: Vec<Blocker> = sums.keys().copied().collect();
        columns.sort_by_key(|blocker| {
            let last = !matches!(blocker, Blocker::Here(_));
            (last, std::cmp::Reverse(sums[blocker]), *blocker)
        });
        let cells = |behind: &[(Blocker, u64)]| {
            let of = |column: &Blocker| behind.iter().find(|(blocker, _)| blocker == column);
            columns
                .iter()
                .map(|column| of(column).map_or(0, |(_, ns)| *ns))
                .collect()
        };
        let lines = lines.iter().map(|(who, waited_ns, behind)| Line {
            who: *who,
            waited_ns: *waited_ns,
            behind: cells(behind),
        });
        Waits {
            span_ns: mark.map(|mark| sample.time_ns - mark.time_ns),
            lines: lines.collect(),
            columns,
        }
    }
}

impl Waits {
    /// Returns the total time waited for each of the columns.
    pub fn sums(&self) -> Vec<u64> {
        let sum = |at: usize| {
            self.lines
                .iter()
                .map(|line| line.behind[at])
                .fold(0, u64::saturating_add)
        };
        (0..self.columns.len()).map(sum).collect()
    }

    /// Returns the length of the time window in seconds; `None` since the processes began.
    pub fn seconds(&self) -> Option<u64> {
        let ns = self.span_ns?;
        Some(ns.saturating_add(500_000_000) / 1_000_000_000)
    }

    /// Returns the pair in which one process waited longest for the other.
    pub fn worst(&self) -> Option<Pair> {
        self.pairs().into_iter().next()
    }

    /// Returns every pair in which one process waited for the other, the longest wait first.
    pub fn pairs(&self) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = self
            .lines
            .iter()
            .flat_map(|line| {
                self.columns
                    .iter()
                    .zip(&line.behind)
                    .filter_map(|(column, ns)| match column {
                        Blocker::Here(behind) if *ns > 0 => Some(Pair {
                            who: line.who,
                            behind: *behind,
                            ns: *ns,
                            share: *ns as f64 / line.waited_ns.max(1) as f64,
                        }),
                        _ => None,
                    })
            })
            .collect();
        pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.ns), pair.who, pair.behind));
        pairs
    }
}

fn blocker(sample: &Sample, slot: SlotId) -> Blocker {
    match sample.process(slot) {
        Some(process) => Blocker::Here(Who::of(process)),
        None => Blocker::Gone,
    }
}

fn earlier(behind: &[(SlotId, u64)], slot: SlotId) -> u64 {
    behind
        .iter()
        .find(|(known, _)| *known == slot)
        .map_or(0, |(_, ns)| *ns)
}

fn add(behind: &mut Behind, blocker: Blocker, ns: u64) {
    match behind.iter_mut().find(|(known, _)| *known == blocker) {
        Some((_, sum)) => *sum = sum.saturating_add(ns),
        None => behind.push((blocker, ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_sample::LockView;

    const S: u64 = 1_000_000_000;

    fn slot(index: u16) -> SlotId {
        SlotId { index, epoch: 1 }
    }

    fn process(index: u16, waited: u64, behind: &[(u16, u64)]) -> ProcessSample {
        let mut holding = Holding::default();
        holding.view.lock = LockView {
            waited_ns: waited * S,
            waited_for: behind
                .iter()
                .map(|(other, s)| (slot(*other), s * S))
                .collect(),
            ..LockView::default()
        };
        let mut process = ProcessSample::default();
        process.view.slot = slot(index);
        process.devices.push(holding);
        process
    }

    fn sample(second: u64, processes: Vec<ProcessSample>) -> Sample {
        let mut sample = Sample::default();
        sample.snapshot.time_ns = second * S;
        sample.processes = processes;
        sample
    }

    fn who(index: u16) -> Who {
        Who::Slot(slot(index))
    }

    #[test]
    fn who_waited_longest_comes_first_and_so_does_who_was_waited_for() {
        let one = sample(
            9,
            vec![process(0, 3, &[(1, 3)]), process(1, 10, &[(0, 2), (7, 5)])],
        );
        let waits = WaitAttribution::default().waits(&one, 0, true);
        assert_eq!(waits.span_ns, None, "one look knows nothing of lately");
        let lines: Vec<Who> = waits.lines.iter().map(|line| line.who).collect();
        assert_eq!(lines, [who(1), who(0)]);
        use Blocker::{Gone, Here, Other};
        assert_eq!(waits.columns, [Here(who(1)), Here(who(0)), Gone, Other]);
        assert_eq!(waits.lines[0].behind, [0, 2 * S, 5 * S, 3 * S]);
        let worst = waits.worst().unwrap();
        assert_eq!((worst.who, worst.behind, worst.ns), (who(0), who(1), 3 * S));
        assert!((worst.share - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_was_long_ago_does_not_count_as_lately() {
        let mut wait_attribution = WaitAttribution::default();
        let at = |second: u64, waited| {
            sample(
                second,
                vec![process(0, waited, &[(1, waited)]), process(1, 0, &[])],
            )
        };
        for second in 100..=160 {
            // The process waits until second 150 and not after.
            let now = at(second, second.min(150));
            wait_attribution.update(&now);
            let seconds = wait_attribution.waits(&now, 0, true).seconds();
            assert!(
                second < 120 || seconds == Some(20),
                "{seconds:?} at {second}"
            );
        }
        let lately = wait_attribution.waits(&at(160, 150), 0, true);
        assert_eq!(lately.span_ns, Some(20 * S));
        assert_eq!(lately.lines[0].waited_ns, 10 * S);
        let ever = wait_attribution.waits(&at(160, 150), 0, false);
        assert_eq!((ever.span_ns, ever.lines[0].waited_ns), (None, 150 * S));
    }

    #[test]
    fn a_clock_that_goes_back_forgets_the_marks() {
        let mut wait_attribution = WaitAttribution::default();
        let at = |second| sample(second, vec![process(0, 5, &[(1, 5)])]);
        wait_attribution.update(&at(1000));
        wait_attribution.update(&at(10));
        wait_attribution.update(&at(12));
        assert_eq!(
            wait_attribution.waits(&at(12), 0, true).span_ns,
            Some(2 * S)
        );
    }
}
