//! The one road by which a person's edit reaches the segments.
//!
//! The control program and the dashboard both go through an [`Editor`]: the change is
//! checked, done by compare-and-swap on the generation, written to the audit log (a refused one
//! too), and then the living processes are waited for until they apply it, for a bounded time; who
//! has not answered by then is named. Taking an edit back ([`Editor::undo`]) is a new edit forward.

use std::path::Path;
use std::time::{Duration, Instant};

use shm_layout::text::PathText as _;
use shm_layout::{Change, Mode, Operator, SegmentDir, SlotId, clock, snapshot};

use super::change::summary;
pub use super::request::EditRequest;
use crate::audit::{AuditLog, Outcome, Record};
use crate::broker_client::{Refusal, ask};
use gpushare_base::host::pids::HostPids;
use gpushare_base::text::users;

mod failure;
mod undo;

pub use failure::EditFailure;

/// How long [`Editor::apply`] waits for the living to apply it.
pub const ACKNOWLEDGEMENT: Duration = Duration::from_secs(3);
/// How often a wait looks for processes that are stopped: none of those applies anything until it goes on.
const STOPPED: Duration = Duration::from_millis(100);

/// A done edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The generation it made.
    pub generation: u64,
    /// The change that would take it back.
    pub old: Change,
    /// The change.
    pub new: Change,
    /// The living that have applied it.
    pub acknowledged_by: Vec<SlotId>,
    /// The living that had not applied it when the wait ended.
    pub missing: Vec<SlotId>,
    /// Those of them that were stopped then: they apply it when they go on.
    pub stopped: Vec<SlotId>,
    /// Why the audit log could not be written, if it could not.
    pub unlogged: Option<String>,
}

/// The sentence about a file of settings that are no longer in force.
pub fn set_aside(file: &Path) -> String {
    format!(
        "the settings of earlier segments are no longer in force, because their state was removed; they are kept in {}",
        file.shown()
    )
}

/// That a request is one that others can read.
pub fn sound(request: &EditRequest) -> Result<(), EditFailure> {
    match request.fault() {
        None => Ok(()),
        Some(error) => Err(EditFailure::Edit {
            target: request.target.clone(),
            error,
        }),
    }
}

/// Makes edits, and records them.
pub struct Editor {
    dir: SegmentDir,
    operator: Result<Operator, (bool, String)>,
    log: AuditLog,
    uid: u32,
    who: String,
}

impl Editor {
    /// Opens the segments for editing. Without the right to, the editor still records what was tried.
    pub fn open(dir: &SegmentDir) -> Self {
        let operator =
            Operator::open(&dir.path).map_err(|error| match EditFailure::open(&dir.path, &error) {
                EditFailure::Open {
                    not_permitted, why, ..
                } => (not_permitted, why),
                other => (false, other.to_string()),
            });
        if let Ok(operator) = &operator {
            // The dead apply nothing: without them the list of those that have not applied it is true.
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

    /// Why this editor cannot edit, if it cannot.
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

    /// Says that settings of earlier segments were found on opening and are not in force.
    pub fn set_aside(&self) -> Option<String> {
        let operator = self.operator.as_ref().ok()?;
        operator.segments().set_aside().map(set_aside)
    }

    /// Where edits are recorded.
    pub fn log(&self) -> &AuditLog {
        &self.log
    }

    /// Checks an edit without doing it, as doing it would, and says what it would replace.
    pub fn check(&self, request: &EditRequest) -> Result<Change, EditFailure> {
        sound(request)?;
        self.preview(&request.change, &request.target)
    }

    /// What a change would replace.
    pub fn preview(&self, change: &Change, target: &str) -> Result<Change, EditFailure> {
        let operator = self.operator()?;
        operator.preview(change).map_err(|error| EditFailure::Edit {
            target: target.into(),
            error,
        })
    }

    /// Does an edit and waits, at most [`ACKNOWLEDGEMENT`], until the living have applied it.
    pub fn apply(&self, request: EditRequest) -> Result<Applied, EditFailure> {
        let applied = self.submit(request)?;
        Ok(self.wait(applied, ACKNOWLEDGEMENT))
    }

    /// Does an edit and does not wait; [`Editor::refresh`] tells later which have applied it.
    pub fn submit(&self, request: EditRequest) -> Result<Applied, EditFailure> {
        self.submit_as(request, None)
    }

    fn submit_as(&self, request: EditRequest, undoes: Option<u64>) -> Result<Applied, EditFailure> {
        let sound = sound(&request);
        if let (Ok(()), true) = (&sound, self.is_brokered()) {
            let answered = ask(&self.dir.path, &request, undoes);
            let (edit, unlogged) =
                answered.map_err(|Refusal { exit, why }| EditFailure::Broker { exit, why })?;
            return Ok(self.refresh(Applied {
                generation: edit.generation,
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
                record.old = Some(summary(&edit.old));
                record.restore = Some(edit.old.clone());
                record.generation = Some(edit.generation);
                let unlogged = self.log.append(&record).err();
                let applied = Applied {
                    generation: edit.generation,
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
                // A refused edit changed nothing; that it also could not be recorded changes nothing more. On a machine
                // with a broker the log is the broker's.
                if self.dir.mode == Mode::User {
                    let _ = self.log.append(&record);
                }
                Err(failure)
            }
        }
    }

    /// The same edit with the present lists of those that have applied it and those that have not.
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

    /// Waits until the living have applied an edit, until only stopped ones have not, or until the time is up.
    pub fn wait(&self, applied: Applied, limit: Duration) -> Applied {
        let mut one = [applied];
        self.wait_for_all(&mut one, limit);
        let [one] = one;
        one
    }

    /// Waits for several edits as for one: a process that has applied the newest has applied all.
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

    /// Those of these processes that are stopped now.
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

    /// Whether edits are asked of the machine's broker, which checks and records them.
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
