//! A request for an edit.

use serde::{Deserialize, Serialize};
use shm_layout::{Change, EditError, text};

/// The program that made an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The control program.
    Ctl,
    /// The dashboard.
    Tui,
}

impl Place {
    /// Returns the word in the record.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ctl => "ctl",
            Self::Tui => "tui",
        }
    }
}

/// Maximum number of characters of a reason, so that the log stays readable.
const LONGEST_REASON: usize = 500;

/// An edit, and the facts about it for the audit log.
#[derive(Debug, Clone)]
pub struct EditRequest {
    /// The change.
    pub change: Change,
    /// Target in words: `41849 vllm-worker`, `gpu0`, `group team-a`.
    pub target: String,
    /// Start time of the target process in clock ticks.
    pub target_start_time: Option<u64>,
    /// Reason in the user's words.
    pub reason: Option<String>,
    /// Program that makes the edit.
    pub place: Place,
    /// Generation that the segments must have, else the edit is refused. `None` accepts any.
    pub expected_generation: Option<u64>,
}

impl EditRequest {
    /// Makes a request without a reason, for any generation.
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

    /// Makes a request for a process. The log keeps its start time, because another process may get its pid.
    pub fn of_process(
        change: Change,
        target: impl Into<String>,
        start_time: u64,
        place: Place,
    ) -> Self {
        Self {
            target_start_time: Some(start_time),
            ..Self::new(change, target, place)
        }
    }

    /// Sets the reason.
    pub fn because(mut self, reason: Option<String>) -> Self {
        self.reason = reason;
        self
    }

    /// Returns an error if the reason is too long or has a hidden character, because other users will read it.
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
