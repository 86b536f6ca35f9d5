//! Events tell that somebody edited; the audit log tells who, and what. It is read when an event asks for it, and then
//! its end only.

use std::path::Path;

use shm_layout::{Event, What};

use gpushare_control::audit::{AuditLog, Outcome, Record};
use gpushare_sample::EditLine;

/// So much of the log is read: some hundred edits.
const TAIL: u64 = 128 << 10;
/// An edit is in force a moment before it is written down; after this long it will not be.
const PATIENCE_NS: u64 = 5_000_000_000;

/// Edits that events have told of and the log has not yet.
#[derive(Debug)]
pub(super) struct Edits {
    log: AuditLog,
    /// Their generations and times.
    awaited: Vec<(u64, u64)>,
}

impl Edits {
    pub(super) fn of(dir: &Path) -> Self {
        Self {
            log: AuditLog::of_path(dir),
            awaited: Vec::new(),
        }
    }

    /// What the log says of the edits among these events, and of earlier ones that it had not said before.
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
            // Generations begin anew in new segments, so the last one of this number is meant.
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
