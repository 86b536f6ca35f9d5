//! An edit that is asked of the machine's broker: what the tool sends, and what the broker answers.
//!
//! The broker believes nothing of it but the wish: who asks it knows from the kernel, whom it concerns from its own roll.

use std::path::Path;

use serde::{Deserialize, Serialize};
use shm_layout::socket::Connection;
use shm_layout::wire::{Field, Message, Verb};
use shm_layout::{Change, Edit, OpenError};

use super::request::{EditRequest, Place};
use gpushare_base::text::exit::Exit;

/// What is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ask {
    /// What is to change.
    pub change: Change,
    /// Its target in the words of who asks.
    pub target: String,
    /// Why.
    pub reason: Option<String>,
    /// From where.
    pub place: Place,
    /// Refuse unless the segments are still at this generation.
    pub expected_generation: Option<u64>,
    /// The generation of the edit that this one takes back.
    pub undoes: Option<u64>,
}

/// What was done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    /// The generation that the edit made.
    pub generation: u64,
    /// What would take it back.
    pub old: Change,
    /// Why the audit log could not be written, if it could not.
    pub unlogged: Option<String>,
}

/// Asks the broker of `dir`.
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

/// Why the broker did nothing.
#[derive(Debug)]
pub struct Refusal {
    /// The code a program should end with.
    pub exit: Exit,
    /// Why, as a sentence.
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
