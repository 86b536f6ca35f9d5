//! The audit log: one JSON object a line for each edit that was tried, refused ones too.
//!
//! A record holds what is needed to undo the edit, and the start time of its process, because the kernel may give the pid
//! to another process later.

mod log;

use serde::{Deserialize, Deserializer, Serialize};
use shm_layout::{Change, text};

pub use super::change::Place;
use super::change::{self, EditRequest, summary};
use gpushare_base::host::signal::Signalled;
use gpushare_base::text::users;
use gpushare_sample::keys::{Keys, object};
pub use log::{AuditLog, Book, unreadable};

/// Version of the record's format.
pub const SCHEMA_VERSION: u32 = 1;

/// Start of the reason of an edit that `gpushare tune` makes for a trial and replaces itself.
pub const TRIAL: &str = "gpushare tune: trial";

/// Maximum number of characters that are kept of each text of a refused edit.
const WORDS: usize = 100;

/// The result of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The edit is in force.
    Applied,
    /// The edit changed nothing.
    Refused,
}

object! {
    /// A line of the log.
    #[derive(Deserialize)]
    pub Record {
        schema_version: u32, "Version of the line: increases when a key changes its meaning or is removed.";
        time: String, "When, RFC 3339 in UTC.";
        uid: u32, "The user's number.";
        who: String, "The user's name; under sudo also who called it.";
        r#where: Place, "ctl for gpushare, tui for gpushare-top.";
        target: String, "What it was for: 41849 vllm-worker, gpu0, group team-a.";
        target_start_time: Option<u64>, "Clock ticks from boot to the start of that process.";
        old: Option<String>, "What it was before.";
        new: String, "What was asked for.";
        generation: Option<u64>, "The generation that the edit made; null when refused.";
        reason: Option<String>, "Why, as --reason gave it.";
        result: Outcome, "applied or refused.";
        refusal: Option<String>, "Why it was refused.";
        undoes: Option<u64>, "The generation of the edit that this one undoes.";
        #[serde(default)]
        change: Option<Change>, "The edit itself; which keys it has depends on its kind. null where no setting was changed (a signal, or a program that an alert started), and for edits that others than administrators were refused.";
        #[serde(default, deserialize_with = "readable")]
        restore: Option<Change>, "The edit that would take it back; null where it cannot be read.";
    }
}

impl Record {
    /// Makes the record of an edit before it is made.
    pub fn of(request: &EditRequest, uid: u32, who: String, undoes: Option<u64>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            time: now(),
            uid,
            who,
            r#where: request.place,
            target: request.target.clone(),
            target_start_time: request.target_start_time,
            old: None,
            new: summary(&request.change),
            generation: None,
            reason: request.reason.clone(),
            result: Outcome::Applied,
            refusal: None,
            undoes,
            change: Some(request.change.clone()),
            restore: None,
        }
    }

    /// Returns the time at which the edit, or its first part, expires, in nanoseconds on the segments' clock.
    pub fn ends_ns(&self) -> Option<u64> {
        self.change.as_ref().and_then(change::ends_ns)
    }

    /// Returns true if all parts of the edit have expired at `now_ns`.
    pub fn has_run_out(&self, now_ns: u64) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|change| change::has_run_out(change, now_ns))
    }

    /// Returns true if the edit belongs to a trial. All trials of a search together change nothing, and one of them undone
    /// would put the policy of the trial before it in force.
    pub fn is_trial(&self) -> bool {
        // Any user may give that reason, but a trial sets a policy, which a broker lets only administrators do.
        let sets_policy = matches!(self.change, Some(Change::Policy { .. }));
        let reason = self.reason.as_deref();
        sets_policy && reason.is_some_and(|reason| reason.starts_with(TRIAL))
    }

    /// Returns true if both edits set the same settings, so that one hides the other.
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        let both = self.change.as_ref().zip(other.change.as_ref());
        both.is_some_and(|(one, other)| change::same_subject(one, other))
    }

    /// Makes the record of another action: a signal, or a program that an alert started.
    pub fn of_action(place: Place, new: String, target: String, started: Option<u64>) -> Self {
        let (uid, who) = users::who_am_i();
        Self {
            schema_version: SCHEMA_VERSION,
            time: now(),
            uid,
            who,
            r#where: place,
            target,
            target_start_time: started,
            old: None,
            new,
            generation: None,
            reason: None,
            result: Outcome::Applied,
            refusal: None,
            undoes: None,
            change: None,
            restore: None,
        }
    }

    /// Makes the record of a signal.
    pub fn of_signal(place: Place, signal: &Signalled) -> Self {
        let new = format!("signal {}", signal.word);
        Self::of_action(place, new, signal.title.clone(), Some(signal.started))
    }

    /// Shortens the record of a refused edit: the change is removed and the texts are cut, because the refused caller chose
    /// them.
    pub fn in_short(mut self) -> Self {
        self.change = None;
        for (text, most) in [
            (&mut self.target, WORDS),
            (&mut self.new, WORDS),
            (self.reason.get_or_insert_default(), WORDS),
            (self.refusal.get_or_insert_default(), 3 * WORDS),
        ] {
            *text = text::shown(text).chars().take(most).collect();
        }
        self.reason.take_if(|reason| reason.is_empty());
        self
    }

    /// Marks the record as refused if there is a reason.
    pub fn refused(mut self, refusal: Option<String>) -> Self {
        if refusal.is_some() {
            (self.result, self.refusal) = (Outcome::Refused, refusal);
        }
        self
    }
}

fn now() -> String {
    let now = jiff::Timestamp::now().round(jiff::Unit::Millisecond);
    now.unwrap_or_default().to_string()
}

impl Keys for Place {}
impl Keys for Outcome {}

/// Reads a change, or `None` if it cannot be read, so that the rest of the record is still used.
fn readable<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Change>, D::Error> {
    let restore = serde_json::Value::deserialize(source)?;
    Ok(serde_json::from_value(restore).unwrap_or_default())
}

/// A record with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Number of the line, from 1.
    pub number: u64,
    /// The record.
    pub record: Record,
}

/// The content of the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Records, oldest first.
    pub entries: Vec<Entry>,
    /// Lines that could not be read, oldest first.
    pub damaged: Vec<Damaged>,
}

/// A line that cannot be read as a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged {
    /// Number of the line, from 1.
    pub number: u64,
    /// Generation in the line, if there is one.
    pub generation: Option<u64>,
}

impl History {
    /// Keeps only the records of the present segments. The generations of new segments count from 1 again, after a boot for
    /// instance, but the log continues.
    pub fn of_present_segments(mut self) -> Self {
        let entries = self
            .entries
            .iter()
            .map(|entry| (entry.number, entry.record.generation));
        let damaged = self
            .damaged
            .iter()
            .map(|line| (line.number, line.generation));
        let firsts = entries
            .chain(damaged)
            .filter(|(_, generation)| *generation == Some(1));
        if let Some(start) = firsts.map(|(number, _)| number).max() {
            self.entries.retain(|entry| entry.number >= start);
            self.damaged.retain(|line| line.number >= start);
        }
        self
    }

    /// Returns the highest line number, or 0 if there is no line.
    pub fn last(&self) -> u64 {
        let entries = self.entries.iter().map(|entry| entry.number);
        let damaged = self.damaged.iter().map(|line| line.number);
        entries.chain(damaged).max().unwrap_or(0)
    }

    /// Returns the newest generation in the log, and the highest one that the log can account for. Each damaged line after
    /// the newest generation counts as one edit.
    pub fn generation(&self) -> Option<(u64, u64)> {
        let named = |line: &Damaged| Some((line.generation?, line.number));
        let entries = self.entries.iter();
        let newest = entries
            .filter_map(|entry| Some((entry.record.generation?, entry.number)))
            .chain(self.damaged.iter().filter_map(named))
            .max();
        let (generation, number) = newest.unwrap_or_default();
        let behind = self.damaged.iter().filter(|line| line.number > number);
        let most = generation + behind.count() as u64;
        (most > 0).then_some((generation, most))
    }

    /// Returns true if the edit that made `generation` has been undone.
    pub fn is_undone(&self, generation: u64) -> bool {
        self.entries.iter().any(|entry| {
            entry.record.undoes == Some(generation) && entry.record.result == Outcome::Applied
        })
    }
}
