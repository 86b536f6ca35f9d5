//! Operators' edits as samples carry them: what the audit log says of an edit that an event told of.

use serde::{Deserialize, Serialize};

use gpushare_base::text::edits::from_to;
use gpushare_base::text::units::short_time;

/// One edit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EditLine {
    /// The generation that it made.
    pub generation: u64,
    /// When.
    pub time_ns: u64,
    /// Who made it.
    pub who: String,
    /// With what: `ctl` or `tui`.
    pub place: String,
    /// What it was for.
    pub target: String,
    /// What it was before, in few words.
    pub old: Option<String>,
    /// What it is now.
    pub new: String,
    /// Why.
    pub reason: Option<String>,
    /// When it ends by itself.
    pub until_ns: Option<u64>,
    /// The generation of the edit that it takes back.
    pub undoes: Option<u64>,
}

impl EditLine {
    /// The edit in one line, what it changed first: `41849 trainer gpu0: quota none -> 32GiB for 9m, by alice: reason`.
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
