//! What may lie over the screen.

use tui_input::Input;

use super::dialog::Dialog;
use super::keys::{KEYS, Key, Place};
use super::operator::Task;
use gpushare_base::host::launched::Launched;
use gpushare_control::audit::Entry;
use gpushare_observe::filter::Filter;
use gpushare_sample::Who;

/// One thing at a time.
#[derive(Clone, Debug)]
pub enum Overlay {
    /// The keys, columns and alerts, scrolled down so many lines.
    Help(usize),
    /// A dialog.
    Dialog(Box<Dialog>),
    /// The edits so far.
    Audit(AuditList),
    /// Everything that is wrong now, scrolled down so many lines.
    Alerts(usize),
    /// The filter line.
    Filter(FilterLine),
    /// A question.
    Question(Box<Question>),
    /// Why each job is slow, and which is selected.
    Why(usize),
    /// Every action, to search.
    Commands(Commands),
    /// The columns, and which is selected.
    Columns(usize),
    /// How a process was started.
    About(Box<About>),
}

/// What one may do, narrowed down by what is written.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// What is written.
    pub input: Input,
    /// Which of those found is selected.
    pub at: usize,
}

impl Commands {
    /// The keys whose description has every word that is written, those that work here.
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

/// Whether to do something.
#[derive(Clone, Debug)]
pub struct Question {
    /// What.
    pub title: String,
    /// What it means, line by line.
    pub lines: Vec<String>,
    /// What a yes does.
    pub task: Task,
}

/// How a process was started.
#[derive(Clone, Debug)]
pub struct About {
    /// Which process.
    pub who: Who,
    /// What the kernel tells; `None` until it is read.
    pub launched: Option<Result<Launched, String>>,
    /// Scrolled down so many lines.
    pub scroll: usize,
}

/// The edits so far.
#[derive(Clone, Debug, Default)]
pub struct AuditList {
    /// Where they are kept.
    pub path: String,
    /// Newest first; `None` until they are read.
    pub entries: Option<Vec<Entry>>,
    /// Lines that could not be read.
    pub damaged: usize,
    /// Which one is selected.
    pub selected: usize,
    /// Shows all that is known of the selected one.
    pub whole: bool,
    /// Asks whether to take the selected one back.
    pub asking: bool,
    /// What the last key led to.
    pub message: Option<String>,
}

impl AuditList {
    /// The selected edit.
    pub fn entry(&self) -> Option<&Entry> {
        self.entries.as_ref()?.get(self.selected)
    }
}

/// A filter being written.
#[derive(Clone, Debug, Default)]
pub struct FilterLine {
    /// What is written.
    pub input: Input,
    /// Why it is not a filter.
    pub error: Option<String>,
    /// The one that held before.
    pub before: Filter,
}
