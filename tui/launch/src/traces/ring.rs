//! Additions from the event ring to a trace: the holders of each device's lock, the waiters, and the operator's edits.
//!
//! All processes write the ring and it overwrites old events, so it may not reach back to a trace's beginning. A trace has
//! its own process's waits and holds in itself.

use std::collections::{BTreeSet, HashMap};

use shm_layout::SegmentDir;

use gpushare_control::audit::AuditLog;
use gpushare_sample::{EventLine, Sample, What};

/// Description of the edit of each generation, in the words of the audit log.
pub type Edits = HashMap<u64, String>;

/// Reads the edits from the log of these segments. Returns none if the log cannot be read.
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
    /// Index of the device.
    pub gpu: usize,
    /// The process that held the lock or waited for it.
    pub who: String,
    /// Slot of the waiting process, which names the lane; `None` for a hold.
    pub waiter: Option<u16>,
    /// Start in nanoseconds on the segments' clock.
    pub start_ns: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
    /// Reason for the end of a hold.
    pub ended_by: &'static str,
}

/// An edit or the effect of a quota at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// Time in nanoseconds on the segments' clock.
    pub time_ns: u64,
    /// Short description.
    pub what: String,
}

/// Returns the holds and waits that ended within `from..=to`. Those of a lane are in the order of their starts.
///
/// An event is written a moment after the end that it records, and the next hold may have begun by then. A lane has one
/// hold or wait at a time, so each ends where the next begins.
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

/// Returns the edits and their effects within `from..=to`.
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

/// Returns the devices that have a span.
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
                // This event is written after the next hold has begun.
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
