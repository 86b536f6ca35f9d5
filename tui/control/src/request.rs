//! An edit as it is asked for.

use serde::{Deserialize, Serialize};
use shm_layout::{Change, EditError, text};

/// From where an edit was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The control program.
    Ctl,
    /// The dashboard.
    Tui,
}

impl Place {
    /// As the record has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ctl => "ctl",
            Self::Tui => "tui",
        }
    }
}

/// What a reader of the log has the patience for.
const LONGEST_REASON: usize = 500;

/// One edit, and what the audit log should know about it.
#[derive(Debug, Clone)]
pub struct EditRequest {
    /// What is to change.
    pub change: Change,
    /// Its target, as a person would say it: `41849 vllm-worker`, `gpu0`, `group team-a`.
    pub target: String,
    /// That process's start time in clock ticks.
    pub target_start_time: Option<u64>,
    /// Why, in the words of who does it.
    pub reason: Option<String>,
    /// From where.
    pub place: Place,
    /// Refuse unless the segments are still at this generation; `None` takes them as they are.
    pub expected_generation: Option<u64>,
}

impl EditRequest {
    /// An edit without a reason that takes the segments as they are.
    pub fn new(change: Change, target: impl Into<String>, place: Place) -> Self {
        Self {
            change,
            target: target.into(),
            target_start_time: None,
            reason: None,
            place,
            expected_generation: None,
        }
    }

    /// The same with a reason.
    pub fn because(mut self, reason: Option<String>) -> Self {
        self.reason = reason;
        self
    }

    /// What is wrong with the reason, if it is long or a character of it does not show: others will read it.
    pub fn fault(&self) -> Option<EditError> {
        let reason = self.reason.as_deref().unwrap_or_default();
        let why = match text::visible(reason) {
            Err(error) => error.to_string(),
            Ok(()) if reason.len() > LONGEST_REASON => {
                format!("must have {LONGEST_REASON} bytes at most")
            }
            Ok(()) => return None,
        };
        Some(EditError::Invalid {
            field: "reason",
            why,
        })
    }
}
