//! The editor makes every edit that a user asks for.
//!
//! The control program and the dashboard both use an [`Editor`]. It checks the change, makes it by compare-and-swap on the
//! generation, and writes it to the audit log, also if it is refused. Then it waits for a limited time until the live
//! processes have applied it; the caller gets the list of those that have not. [`Editor::undo`] makes a new edit.

use std::path::Path;
use std::time::{Duration, Instant};

use shm_layout::text::PathText as _;
use shm_layout::{Change, Operator, SegmentDir, SlotId, Snapshot, clock, snapshot};

use super::change;
pub use super::change::EditRequest;
use super::installation::Installation as _;
use crate::audit::{AuditLog, Outcome, Record};
use crate::broker_client::{Refusal, ask};
use gpushare_base::host::pids::HostPids;
use gpushare_base::text::users;

mod failure;
mod undo;

pub use failure::EditFailure;

/// Maximum time that [`Editor::apply`] waits until live processes apply an edit.
pub const ACKNOWLEDGEMENT: Duration = Duration::from_secs(3);
/// Interval at which a wait searches for stopped processes, which apply nothing until they continue.
const STOPPED: Duration = Duration::from_millis(100);

/// An edit that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Generation that it made.
    pub generation: u64,
    /// Change that would undo it.
    pub old: Change,
    /// Values that it replaced, in few words.
    pub before: String,
    /// Change that was made.
    pub new: Change,
    /// Live processes that have applied it.
    pub acknowledged_by: Vec<SlotId>,
    /// Live processes that had not applied it when the wait ended.
    pub missing: Vec<SlotId>,
    /// Processes of `missing` that were stopped then: they apply it when they continue.
    pub stopped: Vec<SlotId>,
    /// Error of the audit log, if it could not be written.
    pub unlogged: Option<String>,
}

/// Returns the sentence about a file of settings that are no longer in force.
pub fn set_aside(file: &Path) -> String {
    format!(
        "the settings of earlier segments are no longer in force, because their state was removed; they are kept in {}",
        file.shown()
    )
}

/// Checks that the texts of a request are readable.
pub fn sound(request: &EditRequest) -> Result<(), EditFailure> {
    match request.fault() {
        None => Ok(()),
        Some(error) => Err(EditFailure::Edit {
            target: request.target.clone(),
            error,
        }),
    }
}

/// Makes and records edits.
pub struct Editor {
    dir: SegmentDir,
    operator: Result<Operator, (bool, String)>,
    log: AuditLog,
    uid: u32,
    who: String,
}

impl Editor {
    /// Opens the segments for editing. Without permission for that, the editor still records the attempts.
    pub fn open(dir: &SegmentDir) -> Self {
        let operator =
            Operator::open(&dir.path).map_err(|error| match EditFailure::open(&dir.path, &error) {
                EditFailure::Open {
                    not_permitted, why, ..
                } => (not_permitted, why),
                other => (false, other.to_string()),
            });
        if let Ok(operator) = &operator {
            // Dead processes apply nothing, so they are removed from the list of those that have not applied an edit.
            shm_layout::reap(operator.segments(), clock::now());
        }
        let (uid, who) = users::who_am_i();
        Self {
            dir: dir.clone(),
            operator,
            log: AuditLog::of(dir),
            uid,
            who,
        }
    }

    /// Returns the reason why this editor cannot edit, if there is one.
    pub fn refusal(&self) -> Option<EditFailure> {
        self.operator
            .as_ref()
            .err()
            .map(|(not_permitted, why)| EditFailure::Open {
                dir: self.dir.path.clone(),
                not_permitted: *not_permitted,
                why: why.clone(),
            })
    }

    /// Returns a sentence if settings of earlier segments were found on opening and are not in force.
    pub fn set_aside(&self) -> Option<String> {
        let operator = self.operator.as_ref().ok()?;
        operator.segments().set_aside().map(set_aside)
    }

    /// Returns the log of the edits.
    pub fn log(&self) -> &AuditLog {
        &self.log
    }

    /// Makes all checks of an edit without making it. Returns the change that would undo it.
    pub fn check(&self, request: &EditRequest) -> Result<Change, EditFailure> {
        sound(request)?;
        self.preview(&request.change, &request.target)
    }

    /// Returns the change that would undo a change.
    pub fn preview(&self, change: &Change, target: &str) -> Result<Change, EditFailure> {
        let operator = self.operator()?;
        operator.preview(change).map_err(|error| EditFailure::Edit {
            target: target.into(),
            error,
        })
    }

    /// Returns the values that an edit would replace now, in few words; `old` is the change that would undo it.
    pub fn before(&self, old: &Change) -> String {
        change::before(old, &self.snapshot())
    }

    fn snapshot(&self) -> Snapshot {
        let operator = self.operator.as_ref();
        operator.map_or_else(
            |_| Snapshot::default(),
            |operator| snapshot(operator.segments(), clock::now()),
        )
    }

    /// Makes an edit and waits, at most [`ACKNOWLEDGEMENT`], until live processes have applied it.
    pub fn apply(&self, request: EditRequest) -> Result<Applied, EditFailure> {
        let applied = self.submit(request)?;
        Ok(self.wait(applied, ACKNOWLEDGEMENT))
    }

    /// Makes an edit and does not wait; [`Editor::refresh`] later lists the processes that have applied it.
    pub fn submit(&self, request: EditRequest) -> Result<Applied, EditFailure> {
        self.submit_as(request, None)
    }

    fn submit_as(&self, request: EditRequest, undoes: Option<u64>) -> Result<Applied, EditFailure> {
        let sound = sound(&request);
        let then = self.snapshot();
        let before = |old: &Change| change::before(old, &then);
        if let (Ok(()), true) = (&sound, self.is_brokered()) {
            let answered = ask(&self.dir.path, &request, undoes);
            let (edit, unlogged) =
                answered.map_err(|Refusal { exit, why }| EditFailure::Broker { exit, why })?;
            return Ok(self.refresh(Applied {
                generation: edit.generation,
                before: before(&edit.old),
                old: edit.old,
                new: request.change,
                acknowledged_by: Vec::new(),
                missing: Vec::new(),
                stopped: Vec::new(),
                unlogged,
            }));
        }
        let done = sound.and_then(|()| self.operator()).and_then(|operator| {
            operator
                .edit(request.expected_generation, &request.change, clock::now())
                .map_err(|error| EditFailure::Edit {
                    target: request.target.clone(),
                    error,
                })
        });
        let mut record = self.record(&request, undoes);
        match done {
            Ok(edit) => {
                let before = before(&edit.old);
                record.old = Some(before.clone());
                record.restore = Some(edit.old.clone());
                record.generation = Some(edit.generation);
                let unlogged = self.log.append(&record).err();
                let applied = Applied {
                    generation: edit.generation,
                    before,
                    old: edit.old,
                    new: request.change,
                    acknowledged_by: Vec::new(),
                    missing: Vec::new(),
                    stopped: Vec::new(),
                    unlogged: unlogged.map(|error| {
                        format!(
                            "the edit is in force but {} could not be written: {error}",
                            self.log.path().shown()
                        )
                    }),
                };
                Ok(self.refresh(applied))
            }
            Err(failure) => {
                record.result = Outcome::Refused;
                record.refusal = Some(failure.to_string());
                // A refused edit changed nothing, so an error of the log is ignored.
                if self.dir.is_log_ours() {
                    let _ = self.log.append(&record);
                }
                Err(failure)
            }
        }
    }

    /// Returns the edit with the present lists of processes that have and have not applied it.
    pub fn refresh(&self, mut applied: Applied) -> Applied {
        if let Ok(operator) = &self.operator {
            applied.missing = operator.unacknowledged(applied.generation);
            applied.acknowledged_by = snapshot(operator.segments(), clock::now())
                .processes
                .iter()
                .map(|process| process.slot)
                .filter(|slot| !applied.missing.contains(slot))
                .collect();
        }
        applied
    }

    /// Waits until live processes have applied an edit, until only stopped ones have not, or until the time is over.
    pub fn wait(&self, applied: Applied, limit: Duration) -> Applied {
        let mut one = [applied];
        self.wait_for_all(&mut one, limit);
        let [one] = one;
        one
    }

    /// Waits for several edits together: a process that has applied the newest has applied all.
    pub fn wait_for_all(&self, edits: &mut [Applied], limit: Duration) {
        let Ok(operator) = &self.operator else {
            return;
        };
        let newest = edits.iter().map(|edit| edit.generation).max().unwrap_or(0);
        let (start, mut look) = (Instant::now(), STOPPED);
        let mut missing = operator.unacknowledged(newest);
        while !missing.is_empty() && start.elapsed() < limit {
            if start.elapsed() >= look {
                if self.stopped(&missing).len() == missing.len() {
                    break;
                }
                look += STOPPED;
            }
            std::thread::sleep(Duration::from_millis(2));
            missing = operator.unacknowledged(newest);
        }
        let stopped = self.stopped(&missing);
        for edit in edits {
            *edit = self.refresh(edit.clone());
            edit.stopped = edit.missing.clone();
            edit.stopped.retain(|slot| stopped.contains(slot));
        }
    }

    /// Returns those of these processes that are stopped now.
    fn stopped(&self, slots: &[SlotId]) -> Vec<SlotId> {
        let (Ok(operator), false) = (&self.operator, slots.is_empty()) else {
            return Vec::new();
        };
        let mut pids = HostPids::new();
        let all = snapshot(operator.segments(), clock::now()).processes;
        let found = all.into_iter().filter(|process| {
            let is_stopped = |pids: &mut HostPids| {
                let seen = pids.look_for(&process.identity);
                seen.is_some_and(|seen| seen.stopped)
            };
            slots.contains(&process.slot) && is_stopped(&mut pids)
        });
        found.map(|process| process.slot).collect()
    }

    /// Returns true if the machine's broker makes, checks and records the edits.
    fn is_brokered(&self) -> bool {
        self.operator
            .as_ref()
            .is_ok_and(|operator| operator.segments().is_brokered())
    }

    fn operator(&self) -> Result<&Operator, EditFailure> {
        self.operator
            .as_ref()
            .map_err(|(not_permitted, why)| EditFailure::Open {
                dir: self.dir.path.clone(),
                not_permitted: *not_permitted,
                why: why.clone(),
            })
    }

    fn record(&self, request: &EditRequest, undoes: Option<u64>) -> Record {
        Record::of(request, self.uid, self.who.clone(), undoes)
    }
}
