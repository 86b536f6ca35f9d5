//! Edits as samples carry them: the audit log's record of an edit that an event reported.

use serde::{Deserialize, Serialize};

use gpushare_base::text::edits::from_to;
use gpushare_base::text::units::short_time;

/// An edit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EditLine {
    /// The generation that the edit made.
    pub generation: u64,
    /// The time of the edit.
    pub time_ns: u64,
    /// The author.
    pub who: String,
    /// The program that made it: `ctl` or `tui`.
    pub place: String,
    /// The edited process, device or group.
    pub target: String,
    /// The old value, in few words.
    pub old: Option<String>,
    /// The new value.
    pub new: String,
    /// The reason that the author gave.
    pub reason: Option<String>,
    /// The time at which the edit expires.
    pub until_ns: Option<u64>,
    /// The generation of the edit that this one undoes.
    pub undoes: Option<u64>,
}

impl EditLine {
    /// Reports whether an undo takes the edit back. A trace is ended by a command of its own.
    pub fn can_be_undone(&self) -> bool {
        self.undoes.is_none() && !self.new.starts_with("trace ")
    }

    /// Describes the edit in one line, its change first: `41849 trainer gpu0: quota none -> 32GiB for 9m, by alice:
    /// reason`.
    pub fn told(&self, now_ns: u64, arrow: &str) -> String {
        let mut told = format!(
            "{}: {}",
            self.target,
            from_to(self.old.as_deref(), &self.new, arrow)
        );
        match self.until_ns.map(|until| until.checked_sub(now_ns)) {
            Some(Some(left)) => told += &format!(" for {}", short_time(left)),
            Some(None) => told += ", which has ended",
            None => {}
        }
        told += &format!(", by {}", self.who);
        if let Some(generation) = self.undoes {
            told += &format!(" (undo of {generation})");
        }
        if let Some(reason) = &self.reason {
            told += &format!(": {reason}");
        }
        told
    }
}
