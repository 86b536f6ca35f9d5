//! Edits through the machine's broker: the tool's request and the broker's reply.
//!
//! The broker takes only the wanted change from the request. It identifies the caller by the kernel's credentials and the
//! process by its own registry.

use std::path::Path;

use serde::{Deserialize, Serialize};
use shm_layout::socket::Connection;
use shm_layout::wire::{Field, Message, Verb};
use shm_layout::{Change, Edit, OpenError};

use super::change::{EditRequest, Place};
use gpushare_base::text::exit::Exit;

/// A request for an edit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ask {
    /// The change.
    pub change: Change,
    /// Target in the caller's words.
    pub target: String,
    /// Reason for the audit log.
    pub reason: Option<String>,
    /// Program that makes the request.
    pub place: Place,
    /// Generation that the segments must have; at another one the request is refused.
    pub expected_generation: Option<u64>,
    /// Generation of the edit that this one undoes.
    pub undoes: Option<u64>,
}

/// The reply to a successful request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    /// The generation that the edit made.
    pub generation: u64,
    /// Change that would undo the edit.
    pub old: Change,
    /// Error of the audit log, if it could not be written.
    pub unlogged: Option<String>,
}

/// Sends the request to the broker of `dir`.
pub fn ask(
    dir: &Path,
    request: &EditRequest,
    undoes: Option<u64>,
) -> Result<(Edit, Option<String>), Refusal> {
    let ask = Ask {
        change: request.change.clone(),
        target: request.target.clone(),
        reason: request.reason.clone(),
        place: request.place,
        expected_generation: request.expected_generation,
        undoes,
    };
    let words = serde_json::to_string(&ask).map_err(|error| Refusal::from(error.to_string()))?;
    let question = Message::new(Verb::Edit).with(Field::Json, words);
    let (answer, _) = Connection::to_next(dir)?.ask(&question)?;
    let words = answer.text(Field::Json).unwrap_or_default();
    let done: Answer =
        serde_json::from_str(words).map_err(|error| Refusal::from(error.to_string()))?;
    let edit = Edit {
        generation: done.generation,
        old: done.old,
    };
    Ok((edit, done.unlogged))
}

/// The broker's refusal.
#[derive(Debug)]
pub struct Refusal {
    /// Exit code for the program.
    pub exit: Exit,
    /// Reason, as a sentence.
    pub why: String,
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        let said = match &error {
            OpenError::Refused { exit, .. } => exit.and_then(Exit::of_code),
            _ => None,
        };
        let usual = if error.not_permitted() {
            Exit::NotPermitted
        } else {
            Exit::Failed
        };
        Self {
            exit: said.unwrap_or(usual),
            why: error.to_string(),
        }
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self {
            exit: Exit::Failed,
            why,
        }
    }
}
