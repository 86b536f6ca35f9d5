//! The event log: rare events are kept for long, the lock's constant turns only briefly.

use std::collections::{HashMap, VecDeque};

use gpushare_sample::{EventLine, Sample, What};

use gpushare_sample::Who;

const KEPT: usize = 1000;
const TURNS_KEPT: usize = 1000;
/// Minimum length of a wait that is listed on its own.
const LONG_NS: u64 = 1_000_000_000;

/// The events that the pane shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Showing {
    /// All events but short turns of the lock.
    #[default]
    Notable,
    /// All events.
    All,
    /// Waits, holds and releases.
    Lock,
    /// Refused allocations.
    Denials,
    /// Operators' edits.
    Edits,
}

impl Showing {
    /// Returns the word in the pane's title.
    pub fn word(self) -> &'static str {
        match self {
            Showing::Notable => "notable",
            Showing::All => "all",
            Showing::Lock => "lock",
            Showing::Denials => "denials",
            Showing::Edits => "edits",
        }
    }

    /// Returns the next choice of the key.
    pub fn next(self) -> Self {
        match self {
            Showing::Notable => Showing::All,
            Showing::All => Showing::Lock,
            Showing::Lock => Showing::Denials,
            Showing::Denials => Showing::Edits,
            Showing::Edits => Showing::Notable,
        }
    }

    /// Reports whether an event is shown.
    pub fn includes(self, event: &EventLine) -> bool {
        match self {
            Showing::Notable => is_notable(event),
            Showing::All => true,
            Showing::Lock => matches!(
                event.what,
                What::Wait
                    | What::Hold { .. }
                    | What::Release { .. }
                    | What::Active { .. }
                    | What::Rest { .. }
                    | What::Back { .. }
                    | What::Forced { .. }
                    | What::Takeover
            ),
            Showing::Denials => matches!(
                event.what,
                What::Denial { .. }
                    | What::OverQuota { .. }
                    | What::MemoryWait { .. }
                    | What::MemoryDone { .. }
            ),
            Showing::Edits => matches!(event.what, What::Edit { .. } | What::Pick),
        }
    }
}

/// The recent refused allocations of a process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denials {
    /// Number of recent ones.
    pub count: usize,
    /// The size of the last one.
    pub last_bytes: u64,
    /// Time of the first one of the present series, which has no longer pause.
    pub since_ns: u64,
}

/// The events of the recent past.
#[derive(Clone, Debug, Default)]
pub struct Log {
    notable: VecDeque<EventLine>,
    turns: VecDeque<EventLine>,
    /// Number of events that the ring overwrote before they were read.
    pub lost: u64,
    /// Time at which the last loss was noticed.
    pub lost_ns: u64,
}

impl Log {
    /// Moves a sample's events into the log.
    pub fn update(&mut self, sample: &mut Sample) {
        if sample.events_lost > 0 {
            self.lost = self.lost.saturating_add(sample.events_lost);
            self.lost_ns = sample.time_ns;
        }
        for event in std::mem::take(&mut sample.events) {
            let (kept, limit) = match is_notable(&event) {
                true => (&mut self.notable, KEPT),
                false => (&mut self.turns, TURNS_KEPT),
            };
            kept.push_back(event);
            while kept.len() > limit {
                kept.pop_front();
            }
        }
    }

    /// Returns the newest events first.
    pub fn newest(&self, showing: Showing, of: Option<Who>) -> impl Iterator<Item = &EventLine> {
        let mut notable = self.notable.iter().rev().peekable();
        let turns = match showing {
            Showing::Notable => 0,
            _ => self.turns.len(),
        };
        let mut turns = self.turns.iter().rev().take(turns).peekable();
        let merged = std::iter::from_fn(move || match (notable.peek(), turns.peek()) {
            (Some(a), Some(b)) if a.seq < b.seq => turns.next(),
            (Some(_), _) => notable.next(),
            (None, _) => turns.next(),
        });
        merged.filter(move |event| {
            let about = event.slot.map(Who::Slot);
            showing.includes(event) && of.is_none_or(|who| about == Some(who))
        })
    }

    /// Returns the refused allocations of the last `within_ns` for each process and device.
    pub fn denials(&self, now_ns: u64, within_ns: u64) -> HashMap<(Who, usize), Denials> {
        let since_ns = now_ns.saturating_sub(within_ns);
        let mut denials: HashMap<_, Denials> = HashMap::new();
        // The newest comes first.
        for (key, event) in self.recent(0) {
            let What::Denial { asked_bytes, .. } = event.what else {
                continue;
            };
            let is_recent = event.time_ns >= since_ns;
            if let Some(known) = denials.get_mut(&key) {
                known.count += usize::from(is_recent);
                if known.since_ns.saturating_sub(event.time_ns) <= within_ns {
                    known.since_ns = event.time_ns;
                }
            } else if is_recent {
                let last = Denials {
                    count: 1,
                    last_bytes: asked_bytes,
                    since_ns: event.time_ns,
                };
                denials.insert(key, last);
            }
        }
        denials
    }

    /// Counts forced releases of the lock since `since_ns` for each process and device.
    pub fn forced(&self, since_ns: u64) -> HashMap<(Who, usize), usize> {
        let mut forced = HashMap::new();
        for (key, event) in self.recent(since_ns) {
            if matches!(event.what, What::Forced { .. }) {
                *forced.entry(key).or_default() += 1;
            }
        }
        forced
    }

    /// Returns the contexts that were lost, oldest first.
    pub fn losses(&self) -> impl Iterator<Item = &EventLine> + Clone {
        let lost = |event: &&EventLine| matches!(event.what, What::Lost { .. });
        self.notable.iter().filter(lost)
    }

    /// Returns the notable events about a process on a device, newest first.
    fn recent(&self, since_ns: u64) -> impl Iterator<Item = ((Who, usize), &EventLine)> {
        let recent = self
            .notable
            .iter()
            .rev()
            .take_while(move |event| event.time_ns >= since_ns);
        recent.filter_map(|event| Some(((Who::Slot(event.slot?), event.gpu?), event)))
    }
}

fn is_notable(event: &EventLine) -> bool {
    match event.what {
        What::Wait | What::Release { .. } | What::Rest { .. } | What::Back { .. } => false,
        What::Hold { waited_ns } | What::Active { waited_ns } => waited_ns >= LONG_NS,
        What::MemoryDone {
            waited_ns,
            granted: true,
        } => waited_ns >= LONG_NS,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64, what: What) -> EventLine {
        EventLine {
            seq,
            time_ns: seq,
            what,
            ..EventLine::default()
        }
    }

    #[test]
    fn a_denial_outlives_any_number_of_turns() {
        let denial = What::Denial {
            asked_bytes: 1,
            quota_bytes: 1,
            call: None,
        };
        let mut sample = Sample::default();
        sample.events.push(event(0, denial));
        sample
            .events
            .extend((1..10_000).map(|seq| event(seq, What::Wait)));
        let mut log = Log::default();
        log.update(&mut sample);
        assert_eq!(log.newest(Showing::Notable, None).count(), 1);
        let all: Vec<u64> = log.newest(Showing::All, None).map(|e| e.seq).collect();
        assert_eq!((all[0], *all.last().unwrap()), (9999, 0));
        assert!(all.is_sorted_by(|a, b| a > b));
    }
}
