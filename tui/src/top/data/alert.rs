//! One thing that is wrong, as a sentence.

use crate::sample::Who;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A process is harmed.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// How bad.
    pub severity: Severity,
    /// The rule's name, as in JSON.
    pub kind: &'static str,
    /// The word in front of the sentence on screen.
    pub word: &'static str,
    /// Its target.
    pub who: Option<Who>,
    /// Which device it is about.
    pub gpu: Option<usize>,
    /// What is wrong, and what helps.
    pub sentence: String,
}
