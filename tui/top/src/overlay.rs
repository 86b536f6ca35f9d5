//! Overlays: the windows that may lie over the screen.

use tui_input::Input;

use super::dialog::Dialog;
use super::keys::{KEYS, Key, Place};
use super::operator::Task;
use gpushare_base::host::launched::Launched;
use gpushare_control::audit::Entry;
use gpushare_observe::filter::Filter;
use gpushare_sample::Who;

/// The open overlay; there is at most one.
#[derive(Clone, Debug)]
pub enum Overlay {
    /// The keys, columns and alerts, scrolled down by this many lines.
    Help(usize),
    /// A dialog.
    Dialog(Box<Dialog>),
    /// The edits so far.
    Audit(AuditList),
    /// A list of findings, and the selected one.
    Findings(Findings, usize),
    /// The filter line.
    Filter(FilterLine),
    /// The line that asks whether to undo an edit; `None` until the newest is known.
    Undo(Option<Box<Entry>>),
    /// A question.
    Question(Box<Question>),
    /// Every action, to search.
    Commands(Commands),
    /// The columns, and the selected one.
    Columns(usize),
    /// The start of a process.
    About(Box<About>),
}

/// A list of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Findings {
    /// Every alert.
    Alerts,
    /// The reason of each job's speed.
    Why,
}

/// The list of actions, narrowed down by the typed text.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// The typed text.
    pub input: Input,
    /// The position of the selected action.
    pub at: usize,
}

impl Commands {
    /// Returns the keys that work on a screen and whose description has every typed word.
    pub fn found(&self, place: Place) -> Vec<&'static Key> {
        let written = self.input.value().to_lowercase();
        let words: Vec<&str> = written.split_whitespace().collect();
        let fits = |key: &&Key| {
            let text = format!("{} {} {}", key.label, key.about, key.shown).to_lowercase();
            key.works_in(place) && key.is_command() && words.iter().all(|word| text.contains(word))
        };
        KEYS.iter().filter(fits).collect()
    }
}

/// A yes-or-no question before an action.
#[derive(Clone, Debug)]
pub struct Question {
    /// The question.
    pub title: String,
    /// The consequences, line by line.
    pub lines: Vec<String>,
    /// The task that a yes starts.
    pub task: Task,
}

/// The start of a process: its command, limits and environment.
#[derive(Clone, Debug)]
pub struct About {
    /// The process.
    pub who: Who,
    /// The kernel's facts; `None` until they are read.
    pub launched: Option<Result<Launched, String>>,
    /// Number of lines scrolled down.
    pub scroll: usize,
}

/// The list of edits.
#[derive(Clone, Debug, Default)]
pub struct AuditList {
    /// The path of the log.
    pub path: String,
    /// The edits, newest first; `None` until they are read.
    pub entries: Option<Vec<Entry>>,
    /// Number of lines that could not be read.
    pub damaged: usize,
    /// The position of the selected edit.
    pub selected: usize,
    /// Shows all facts about the selected edit.
    pub whole: bool,
    /// Asks whether to undo the selected edit.
    pub asking: bool,
    /// The result of the last key.
    pub message: Option<String>,
}

impl AuditList {
    /// Returns the selected edit.
    pub fn entry(&self) -> Option<&Entry> {
        self.entries.as_ref()?.get(self.selected)
    }
}

/// A filter that is being typed.
#[derive(Clone, Debug, Default)]
pub struct FilterLine {
    /// The typed text.
    pub input: Input,
    /// The reason why the text is not a filter.
    pub error: Option<String>,
    /// The filter that was in force before.
    pub before: Filter,
}
