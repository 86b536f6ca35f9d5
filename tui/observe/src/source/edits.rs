//! The edits that samples carry. An event reports that an edit was made; the audit log has its author and content. Only
//! the end of the log is read, and only after such an event.

use std::path::Path;

use shm_layout::{Event, What};

use gpushare_control::audit::{AuditLog, Outcome, Record};
use gpushare_sample::EditLine;

/// Number of bytes read from the end of the log: some hundred edits.
const TAIL: u64 = 128 << 10;
/// Time after which a missing record is given up: an edit is in force a moment before it is written to the log.
const PATIENCE_NS: u64 = 5_000_000_000;

/// The edits that events have reported and the log does not have yet.
#[derive(Debug)]
pub(super) struct Edits {
    log: AuditLog,
    /// The generations and times of these edits.
    awaited: Vec<(u64, u64)>,
}

impl Edits {
    pub(super) fn of(dir: &Path) -> Self {
        Self {
            log: AuditLog::of_path(dir),
            awaited: Vec::new(),
        }
    }

    /// Returns the log's records of the edits among these events, and of earlier edits whose record has arrived since.
    pub(super) fn resolve(&mut self, events: &[Event], now_ns: u64) -> Vec<EditLine> {
        self.awaited.extend(events.iter().filter_map(|event| {
            let What::Edit { generation } = event.what() else {
                return None;
            };
            Some((generation, event.time_ns))
        }));
        if self.awaited.is_empty() {
            return Vec::new();
        }
        let records = self.log.newest(TAIL).unwrap_or_default();
        let mut lines = Vec::new();
        self.awaited.retain(|(generation, time_ns)| {
            // Generations start anew in new segments, so the last record with this number is the right one.
            let record = records.iter().rev().find(|record| {
                record.generation == Some(*generation) && record.result == Outcome::Applied
            });
            lines.extend(record.map(|record| line(record, *generation, *time_ns)));
            record.is_none() && now_ns.saturating_sub(*time_ns) < PATIENCE_NS
        });
        lines
    }
}

fn line(record: &Record, generation: u64, time_ns: u64) -> EditLine {
    EditLine {
        generation,
        time_ns,
        who: record.who.clone(),
        place: record.r#where.word().to_owned(),
        target: record.target.clone(),
        old: record.old.clone(),
        new: record.new.clone(),
        reason: record.reason.clone(),
        until_ns: record.ends_ns(),
        undoes: record.undoes,
    }
}
