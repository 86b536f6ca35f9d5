//! What the event ring tells beside the traces: who had each device's lock, who waited, what an operator did.
//!
//! All processes write the ring and it turns over, so it may not reach back to a trace's beginning; a trace has
//! its own process's waits and holds in itself.

use std::collections::{BTreeSet, HashMap};

use shm_layout::SegmentDir;

use gpushare_control::audit::AuditLog;
use gpushare_sample::{EventLine, Sample, What};

/// What each generation changed, in the words of the audit log.
pub type Edits = HashMap<u64, String>;

/// From the log of these segments; empty where it cannot be read.
pub fn edits(dir: &SegmentDir) -> Edits {
    let history = AuditLog::of(dir).read().unwrap_or_default();
    let entries = history.of_present_segments().entries.into_iter();
    entries
        .filter_map(|entry| {
            let record = entry.record;
            Some((
                record.generation?,
                format!("{}: {}", record.target, record.new),
            ))
        })
        .collect()
}

/// A stretch of time on a device's timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Position of the device.
    pub gpu: usize,
    /// Who held it or waited.
    pub who: String,
    /// The slot that names the lane of who waited; `None` for a hold.
    pub waiter: Option<u16>,
    /// When it began.
    pub start_ns: u64,
    /// How long it lasted.
    pub duration_ns: u64,
    /// How a hold ended.
    pub ended_by: &'static str,
}

/// Something an operator or a quota did at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub time_ns: u64,
    /// What, in few words.
    pub what: String,
}

/// Holds and waits that ended within `from..=to`, each lane's in the order of their beginnings.
///
/// An event is written a moment after what it tells, by then the next may have begun. A lane holds one
/// thing at a time, so each ends where the next begins.
pub fn spans(sample: &Sample, from: u64, to: u64) -> Vec<Span> {
    let within = |event: &&EventLine| (from..=to).contains(&event.time_ns);
    let told = sample.events.iter().filter(within);
    let mut spans: Vec<Span> = told.filter_map(|event| span(event, sample)).collect();
    spans.sort_by_key(|span| (span.gpu, span.waiter, span.start_ns));
    for at in 1..spans.len() {
        let next = (spans[at].gpu, spans[at].waiter, spans[at].start_ns);
        let span = &mut spans[at - 1];
        if (span.gpu, span.waiter) == (next.0, next.1) {
            span.duration_ns = span.duration_ns.min(next.2 - span.start_ns);
        }
    }
    spans
}

fn span(event: &EventLine, sample: &Sample) -> Option<Span> {
    let (waited, length, ended_by) = match event.what {
        What::Hold { waited_ns } | What::Active { waited_ns } if waited_ns > 0 => {
            (true, waited_ns, "")
        }
        What::Rest { active_ns } => (false, active_ns, "rest"),
        What::Back { active_ns } => (false, active_ns, "back"),
        What::Release { reason, held_ns } => (false, held_ns, reason.word()),
        What::Forced { held_ns } => (false, held_ns, "forced"),
        _ => return None,
    };
    let slot = event.slot?;
    Some(Span {
        gpu: event.gpu?,
        who: who(event, sample),
        waiter: waited.then_some(slot.index),
        start_ns: event.time_ns.checked_sub(length)?,
        duration_ns: length,
        ended_by,
    })
}

fn who(event: &EventLine, sample: &Sample) -> String {
    let living = event.slot.and_then(|slot| sample.process(slot));
    match (living, event.pid, &*event.name) {
        (Some(process), ..) => process.pid_and_name(),
        (None, Some(pid), name) => format!("{pid} {name}"),
        (None, None, "") => event
            .slot
            .map_or_else(String::new, |slot| format!("slot {}", slot.index)),
        (None, None, name) => name.to_owned(),
    }
}

/// Edits and what followed from them within `from..=to`.
pub fn moments(sample: &Sample, edits: &Edits, from: u64, to: u64) -> Vec<Moment> {
    let within = |event: &&EventLine| (from..=to).contains(&event.time_ns);
    let told = |event: &EventLine| {
        let what = match event.what {
            What::Edit { generation } => match edits.get(&generation) {
                Some(what) => what.clone(),
                None => format!("edit, generation {generation}"),
            },
            What::OverQuota {
                used_bytes,
                quota_bytes,
            } => format!(
                "{} is over its quota: {used_bytes} of {quota_bytes} bytes",
                who(event, sample)
            ),
            What::Takeover => format!("lock taken over from {}, which died", who(event, sample)),
            What::Forced { .. } => format!("lock taken from {}", who(event, sample)),
            _ => return None,
        };
        Some(Moment {
            time_ns: event.time_ns,
            what,
        })
    };
    sample
        .events
        .iter()
        .filter(within)
        .filter_map(told)
        .collect()
}

/// The devices on which anything is told.
pub fn devices(spans: &[Span]) -> BTreeSet<usize> {
    spans.iter().map(|span| span.gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_sample::{Reason, SlotId};

    #[test]
    fn a_lane_holds_one_thing_at_a_time() {
        let slot = |index| Some(SlotId { index, epoch: 1 });
        let event = |time_ns, slot, what| EventLine {
            time_ns,
            slot,
            gpu: Some(0),
            what,
            ..EventLine::default()
        };
        let release = |held_ns| What::Release {
            reason: Reason::Slice,
            held_ns,
        };
        let sample = Sample {
            events: vec![
                event(50, slot(1), release(50)),
                event(100, slot(1), What::Hold { waited_ns: 60 }),
                // Written late, when the next hold had begun.
                event(120, slot(0), release(80)),
                event(190, slot(1), release(90)),
                event(900, slot(0), release(10)),
            ],
            ..Sample::default()
        };
        let spans = spans(&sample, 60, 500);
        let seen: Vec<_> = spans
            .iter()
            .map(|span| (span.waiter, span.start_ns, span.duration_ns))
            .collect();
        assert_eq!(seen, [(None, 40, 60), (None, 100, 90), (Some(1), 40, 60)]);
        assert_eq!(devices(&spans), BTreeSet::from([0]));
    }
}
