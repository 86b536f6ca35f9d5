//! The audit log: one JSON object a line for each edit that was tried, refused ones too.
//!
//! A record holds what is needed to take the edit back (`undo`), and the start time of the process it was meant for: a number
//! used again by the kernel is not the same process.

mod log;

use serde::{Deserialize, Deserializer, Serialize};
use shm_layout::{Change, text};

use super::change::{self, summary};
use super::request::EditRequest;
pub use super::request::Place;
use gpushare_base::host::signal::Signalled;
use gpushare_base::text::users;
use gpushare_sample::keys::{Keys, object};
pub use log::{AuditLog, Book, SYSTEM_LOGS, unreadable};

/// Version of the record's shape.
pub const SCHEMA_VERSION: u32 = 1;

/// So many characters of each text of a refused edit are kept.
const WORDS: usize = 100;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It is in force.
    Applied,
    /// Nothing was changed.
    Refused,
}

object! {
    /// One line of the log.
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
    /// Of an edit that is about to be made.
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

    /// When the edit, or the first part of it, ends by itself, on the segments' clock.
    pub fn ends_ns(&self) -> Option<u64> {
        self.change.as_ref().and_then(change::ends_ns)
    }

    /// Whether all that the edit did has ended by itself at a time.
    pub fn has_run_out(&self, now_ns: u64) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|change| change::has_run_out(change, now_ns))
    }

    /// Whether both edits concern the same settings, so that one hides the other.
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        let both = self.change.as_ref().zip(other.change.as_ref());
        both.is_some_and(|(one, other)| change::same_subject(one, other))
    }

    /// Of something else that was done: a signal, or a program that an alert started.
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

    /// Of a signal that was sent, or not.
    pub fn of_signal(place: Place, signal: &Signalled) -> Self {
        let new = format!("signal {}", signal.word);
        Self::of_action(place, new, signal.title.clone(), Some(signal.started))
    }

    /// What is kept of one that was refused: who, what for and why, and not all that was asked for. Whoever is refused chose the words.
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

    /// The same, refused for this reason, if there is one.
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

/// What cannot be read is left out: the rest of the record is still worth having.
fn readable<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Change>, D::Error> {
    let restore = serde_json::Value::deserialize(source)?;
    Ok(serde_json::from_value(restore).unwrap_or_default())
}

/// A record and its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its place among all lines that are kept, from 1.
    pub number: u64,
    /// What it says.
    pub record: Record,
}

/// What the log holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Records, oldest first.
    pub entries: Vec<Entry>,
    /// Lines that could not be read, oldest first.
    pub damaged: Vec<Damaged>,
}

/// A line that is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged {
    /// Its place among all lines that are kept, from 1.
    pub number: u64,
    /// The generation it names, if it names one.
    pub generation: Option<u64>,
}

impl History {
    /// Only what concerns the present segments: generations count from 1 again in new ones, after a
    /// boot for instance, while the log goes on.
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

    /// The highest number of a line; 0 where there is none.
    pub fn last(&self) -> u64 {
        let entries = self.entries.iter().map(|entry| entry.number);
        let damaged = self.damaged.iter().map(|line| line.number);
        entries.chain(damaged).max().unwrap_or(0)
    }

    /// The generation that the log accounts for, if it has any: a line that cannot be read is taken for one edit.
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

    /// Whether the edit that made `generation` has been undone.
    pub fn is_undone(&self, generation: u64) -> bool {
        self.entries.iter().any(|entry| {
            entry.record.undoes == Some(generation) && entry.record.result == Outcome::Applied
        })
    }
}
