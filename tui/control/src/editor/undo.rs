//! Undo of edits.
//!
//! An edit can be undone if no later edit changed the same settings, and if every change since is in the log. The old
//! values are restored by a new edit, which is made only if the generation has not changed since the check. So a second
//! undo goes one edit further back.
//!
//! The edits of the trials of `gpushare tune` are not undone, because the search restores the settings itself.
//!
//! A timed edit that has expired does not block the undo of an older edit, and is not undone itself. The values that an
//! edit replaced may have been timed too. Before their end they are restored with the same end; after it, the values that
//! followed them are restored.

use shm_layout::text::PathText as _;
use shm_layout::{Change, EditError, Operator, Set, ShareEdit, clock, snapshot};

use super::{Applied, EditFailure, EditRequest, Editor};
use crate::audit::{Entry, History, Outcome, Place, unreadable};
use gpushare_base::text::plain::plain;

impl Editor {
    /// Returns the edits that can be undone, newest first. Edits of ended processes are left out, and so are traces: a user
    /// who undoes the newest edit does not mean a trace that was started after it.
    pub fn undoable(&self) -> Result<Vec<Entry>, EditFailure> {
        let now_ns = clock::now();
        let mut settings = self.settings_edits()?;
        settings.retain(|entry| !entry.record.has_run_out(now_ns));
        Ok(settings)
    }

    /// Returns the timed edits that have expired since the newest edit that can be undone, newest first.
    pub fn reverted(&self) -> Result<Vec<Entry>, EditFailure> {
        let now_ns = clock::now();
        let settings = self.settings_edits()?.into_iter();
        Ok(settings
            .take_while(|entry| entry.record.has_run_out(now_ns))
            .collect())
    }

    /// Returns the edits of processes that have ended since, among those after the newest edit that can be undone, newest first.
    pub fn ended(&self) -> Result<Vec<Entry>, EditFailure> {
        let newest = self.undoable()?.first().map_or(0, |entry| entry.number);
        let history = self.history()?;
        let operator = self.operator()?;
        let entries = history.entries.iter().rev();
        let later = entries.take_while(|entry| entry.number > newest);
        let now_ns = clock::now();
        let ended = later.filter(|entry| {
            let is_open = can_be_undone(&history, entry) && !is_trace(entry);
            is_open && !entry.record.has_run_out(now_ns) && has_gone(operator, entry)
        });
        Ok(ended.cloned().collect())
    }

    /// Returns sentences about the traces that go on, among the edits after the newest one that can be undone, newest first.
    pub fn traces(&self) -> Result<Vec<String>, EditFailure> {
        let newest = self.undoable()?.first().map_or(0, |entry| entry.number);
        let history = self.history()?;
        let operator = self.operator()?;
        let later = |of: &Entry| {
            let rest = history.entries.iter();
            rest.filter(|entry| entry.number > of.number).any(|entry| {
                can_be_undone(&history, entry) && entry.record.is_about_the_same(&of.record)
            })
        };
        let entries = history.entries.iter().rev();
        let entries = entries.take_while(|entry| entry.number > newest);
        let going = entries.filter(|entry| {
            is_trace(entry)
                && can_be_undone(&history, entry)
                && !later(entry)
                && !has_gone(operator, entry)
        });
        Ok(going.filter_map(not_undone).collect())
    }

    /// Returns sentences about the edits that are skipped because the log does not contain the values that they replaced:
    /// those since the newest edit that can be undone, newest first.
    pub fn unreadable(&self) -> Result<Vec<String>, EditFailure> {
        let newest = self.undoable()?.first().map_or(0, |entry| entry.number);
        let history = self.history()?;
        let untold = |entry: &&Entry| is_open(&history, entry) && entry.record.restore.is_none();
        let mut passed: Vec<(u64, String)> = history
            .entries
            .iter()
            .filter(untold)
            .map(|entry| (entry.number, format!(" on {}", plain(&entry.record.target))))
            .chain(
                history
                    .damaged
                    .iter()
                    .map(|line| (line.number, String::new())),
            )
            .filter(|(number, _)| *number > newest)
            .collect();
        passed.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        let told = |(number, target): (u64, String)| {
            format!(
                "edit {number}{target} cannot be undone, because {} does not record the earlier value; set the value by hand",
                self.log.path().shown()
            )
        };
        Ok(passed.into_iter().map(told).collect())
    }

    /// Returns the applied edits of settings that were not undone and whose process lives, newest first.
    fn settings_edits(&self) -> Result<Vec<Entry>, EditFailure> {
        let history = self.history()?;
        let operator = self.operator()?;
        let open = history.entries.iter().rev().filter(|entry| {
            can_be_undone(&history, entry) && !is_trace(entry) && !has_gone(operator, entry)
        });
        Ok(open.cloned().collect())
    }

    /// Undoes the edit with this number in the log.
    pub fn undo_number(
        &self,
        number: u64,
        place: Place,
        why: Option<&str>,
    ) -> Result<(Entry, Applied), EditFailure> {
        let log = self.log.path().shown();
        let all = self.read()?;
        let is_damaged = all.damaged.iter().any(|line| line.number == number);
        let is_there = all.entries.iter().any(|entry| entry.number == number);
        let present = all.of_present_segments().entries.into_iter();
        let found = present.into_iter().find(|entry| entry.number == number);
        let Some(entry) = found else {
            return Err(match (is_there, is_damaged) {
                (true, _) => EditFailure::Undo(format!(
                    "edit {number} was made in earlier segments and is not in force any more, so there is nothing to undo"
                )),
                (_, true) => EditFailure::Undo(format!(
                    "edit {number} cannot be undone, because its line in {log} cannot be read; set the value by hand"
                )),
                _ => EditFailure::NoSuchEdit(format!(
                    "there is no edit {number} in {log}; gpushare audit lists them, and gpushare undo --last {number} undoes the \
                     newest {number}"
                )),
            });
        };
        if is_trace(&entry) {
            let ended = || format!("edit {number} ends a trace and is not undone");
            return Err(EditFailure::Undo(not_undone(&entry).unwrap_or_else(ended)));
        }
        let applied = self.undo(&entry, place, why)?;
        Ok((entry, applied))
    }

    /// Undoes the newest `count` edits, newest first. Stops at the first refusal.
    pub fn undo_newest(
        &self,
        count: usize,
        place: Place,
        why: Option<&str>,
    ) -> Result<Vec<(Entry, Applied)>, EditFailure> {
        let entries = self.undoable()?;
        if entries.is_empty() {
            return Err(EditFailure::NothingToUndo(format!(
                "there is no edit to undo in {}",
                self.log.path().shown()
            )));
        }
        entries
            .into_iter()
            .take(count)
            .map(|entry| Ok((entry.clone(), self.undo(&entry, place, why)?)))
            .collect()
    }

    /// Undoes one edit. The log records its generation, and the reason if there is one.
    pub fn undo(
        &self,
        entry: &Entry,
        place: Place,
        why: Option<&str>,
    ) -> Result<Applied, EditFailure> {
        let now_ns = clock::now();
        let history = self.history()?;
        let generation = self.generation_in_log(&history)?;
        if entry.record.is_trial() {
            return Err(EditFailure::Undo(format!(
                "edit {} is a trial of gpushare tune, which restores the settings itself, so there is nothing to undo",
                entry.number
            )));
        }
        if !is_open(&history, entry) {
            return Err(EditFailure::Undo(format!(
                "edit {} was refused or is already undone; gpushare audit shows which edits can be undone",
                entry.number
            )));
        }
        if entry.record.has_run_out(now_ns) {
            return Err(EditFailure::Undo(format!(
                "edit {} has already reverted by itself, so there is nothing to undo",
                entry.number
            )));
        }
        if let Some(later) = history.entries.iter().rev().find(|later| {
            // Another user's edit counts even if it changed nothing: the value is meant to stay.
            let is_meant = later.record.uid != entry.record.uid && later.record.restore.is_some();
            later.number > entry.number
                && (can_be_undone(&history, later) || is_meant && is_open(&history, later))
                && !later.record.has_run_out(now_ns)
                && later.record.is_about_the_same(&entry.record)
        }) {
            return Err(EditFailure::Undo(format!(
                "edit {} by {} set {} after edit {}; undo that one first",
                later.number,
                plain(&later.record.who),
                plain(&later.record.target),
                entry.number
            )));
        }
        let change = restore(entry, now_ns).ok_or_else(|| {
            EditFailure::Undo(format!(
                "edit {} does not record the earlier value; set the value by hand",
                entry.number
            ))
        })?;
        let request = EditRequest {
            change,
            target: entry.record.target.clone(),
            target_start_time: entry.record.target_start_time,
            reason: Some(match why {
                Some(why) => format!("undo of edit {}: {why}", entry.number),
                None => format!("undo of edit {}", entry.number),
            }),
            place,
            expected_generation: Some(generation),
        };
        let applied = self.submit_as(request, entry.record.generation)?;
        Ok(self.wait(applied, super::ACKNOWLEDGEMENT))
    }

    /// Returns the present generation if the log accounts for it.
    fn generation_in_log(&self, history: &History) -> Result<u64, EditFailure> {
        let generation = snapshot(self.operator()?.segments(), clock::now()).generation;
        let logged = history.generation();
        match logged {
            Some((least, most)) if (least..=most).contains(&generation) => Ok(generation),
            _ => Err(EditFailure::Undo(format!(
                "the settings are at generation {generation} and {} ends at {}: they were changed outside the \
                 log, so nothing is undone; set the values by hand",
                self.log.path().shown(),
                logged.map_or_else(|| "none".to_owned(), |(_, most)| most.to_string()),
            ))),
        }
    }

    fn history(&self) -> Result<History, EditFailure> {
        Ok(self.read()?.of_present_segments())
    }

    /// Reads the whole log.
    fn read(&self) -> Result<History, EditFailure> {
        let history = self.log.read();
        history.map_err(|error| EditFailure::Undo(unreadable(&self.dir, &error)))
    }
}

/// Returns the edit that undoes this one at `now_ns`. A boost that would have ended by then is not restored. A quota's
/// change contains the value that follows its end.
fn restore(entry: &Entry, now_ns: u64) -> Option<Change> {
    let mut change = entry.record.restore.clone()?;
    if let Change::ProcessShare {
        share: ShareEdit { boost, .. },
        ..
    } = &mut change
        && matches!(boost, Set::To(boost) if boost.until_ns <= now_ns)
    {
        *boost = Set::Inherit;
    }
    Some(change)
}

/// Returns true if the edit is of a process that has ended.
fn has_gone(operator: &Operator, entry: &Entry) -> bool {
    restore(entry, clock::now())
        .is_some_and(|change| matches!(operator.check(&change), Err(EditError::NoSuchTarget)))
}

fn is_trace(entry: &Entry) -> bool {
    matches!(entry.record.change, Some(Change::Trace { .. }))
}

/// Returns the sentence about an edit that starts a trace, with the command that ends it.
fn not_undone(entry: &Entry) -> Option<String> {
    let Some(Change::Trace { on: Some(_), .. }) = entry.record.change else {
        return None;
    };
    // The target begins with the pid.
    let target = plain(&entry.record.target);
    let pid = target.split(' ').next().unwrap_or_default();
    Some(format!(
        "edit {} is a trace and is not undone; gpushare trace stop {pid} ends it",
        entry.number
    ))
}

/// Returns true if the log has the values that the edit replaced, it changed one, and it is not undone.
fn can_be_undone(history: &History, entry: &Entry) -> bool {
    let record = &entry.record;
    record.restore.is_some() && record.restore != record.change && is_open(history, entry)
}

/// Returns true if the edit was applied, is neither an undo nor a trial, and was not undone.
fn is_open(history: &History, entry: &Entry) -> bool {
    let record = &entry.record;
    record.result == Outcome::Applied
        && record.undoes.is_none()
        && !record.is_trial()
        && record
            .generation
            .is_some_and(|generation| !history.is_undone(generation))
}
