//! Dialogs: a few fields, checks that are updated with every key, and one edit when they all pass.
//!
//! The subject of a dialog is fixed when it opens: a slot and its epoch, or a device's UUID. Moving rows and reused
//! pids cannot divert an edit.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use shm_layout::Change;
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;

use crate::operator::Task;
use gpushare_control::EditRequest;
use gpushare_observe::data::Data;
use gpushare_observe::what_if::Ghost;
use gpushare_sample::ProcessSample;

mod effect;
mod policy;
mod quota;
mod share;
mod signal;

pub use policy::PolicySubject;
pub use quota::QuotaSubject;
pub use share::ShareSubject;
pub use signal::SignalSubject;

/// Names the devices that a process uses, for a title: `GPU0`, `GPU0 GPU3`.
pub fn gpus(process: &ProcessSample) -> String {
    let gpus = process.uses().map(|h| format!("GPU{}", h.gpu));
    let gpus: Vec<String> = gpus.collect();
    match gpus.len() {
        0 => "no GPU".into(),
        1..=4 => gpus.join(" "),
        n => format!("{n} GPUs"),
    }
}

/// Returns the checks of a change that was not typed into a dialog: before an undo.
pub fn foresee(data: &Data, change: &Change) -> Vec<Check> {
    match change {
        Change::ProcessQuota { .. } => quota::foresee(data, change),
        Change::ProcessQuotas { .. } => {
            vec![Check::good("every device gets back the quota that it had")]
        }
        Change::Policy { device, policy, .. } => policy::foresee(data, *device, *policy),
        Change::Trace { on: Some(_), .. } => vec![Check::warn(
            "its calls are recorded again, if the file still exists; better start a new trace with t",
        )],
        Change::Trace { on: None, .. } => vec![Check::good("its trace ends; the file stays")],
        Change::ProcessShare { .. }
        | Change::DeviceLimit { .. }
        | Change::DeviceMemory { .. }
        | Change::Rule { .. }
        | Change::Group { .. }
        | Change::Label { .. } => Vec::new(),
    }
}

/// A field of a dialog.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name of the field.
    pub label: &'static str,
    /// The input of the field.
    pub control: Control,
    /// The allowed values, or the previous value.
    pub note: String,
}

/// The input of a field.
#[derive(Clone, Debug)]
pub enum Control {
    /// Text.
    Text(Input),
    /// A choice of one word among several.
    Choice {
        /// The words.
        options: Vec<String>,
        /// The position of the chosen word.
        at: usize,
    },
}

impl Field {
    fn text(label: &'static str, value: impl Into<String>, note: impl Into<String>) -> Self {
        Self {
            label,
            control: Control::Text(Input::new(value.into())),
            note: note.into(),
        }
    }

    fn choice(label: &'static str, options: &[&str], at: usize) -> Self {
        Self {
            label,
            control: Control::Choice {
                options: options.iter().map(|word| (*word).to_owned()).collect(),
                at,
            },
            note: String::new(),
        }
    }

    /// Returns the value of the field.
    pub fn value(&self) -> &str {
        match &self.control {
            Control::Text(input) => input.value().trim(),
            Control::Choice { options, at } => options.get(*at).map_or("", String::as_str),
        }
    }
}

/// A fact to consider before applying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The verdict.
    pub verdict: Verdict,
    /// The fact as a sentence.
    pub text: String,
}

/// The verdict of a check, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// No objection.
    Good,
    /// Allowed, with a consequence.
    Warn,
    /// The edit is impossible.
    Bad,
}

impl Check {
    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Good,
            text: text.into(),
        }
    }

    pub(crate) fn warn(text: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warn,
            text: text.into(),
        }
    }

    fn bad(text: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Bad,
            text: text.into(),
        }
    }
}

/// The foreseen jobs of a device, or the reason why nothing is foreseen.
pub type WhatIf = Result<Vec<Ghost>, String>;

/// The subject of a dialog.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A process's memory quota on a device.
    Quota(QuotaSubject),
    /// A device's lock policy.
    Policy(PolicySubject),
    /// A process's weight, priority and cap.
    Share(ShareSubject),
    /// A signal to a process.
    Signal(SignalSubject),
}

/// The progress of an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The user still fills in the fields.
    #[default]
    Editing,
    /// Sent, without an answer.
    Sent,
    /// In force; the named processes have not applied it yet.
    Waiting(String),
    /// Refused.
    Failed(String),
}

/// The result of a key in a dialog.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Keep the dialog open.
    Stay,
    /// Close the dialog.
    Close,
    /// Send the edit to the operator.
    Apply,
}

/// An open dialog.
#[derive(Clone, Debug)]
pub struct Dialog {
    /// The subject.
    pub subject: Subject,
    /// The heading.
    pub title: String,
    /// The fields.
    pub fields: Vec<Field>,
    /// The field with the cursor; one past the last is the Apply button, then Cancel.
    pub focus: usize,
    /// The progress of the edit.
    pub progress: Progress,
    /// Set until something is typed in the field: the first input replaces its value.
    pub fresh: bool,
}

impl Dialog {
    /// Returns the position of the Apply button in the focus order.
    pub fn apply_at(&self) -> usize {
        self.fields.len()
    }

    /// Puts a proposed value into the field with this label, and the cursor there.
    pub fn fill(&mut self, label: &str, value: String) {
        let at = self.fields.iter().position(|field| field.label == label);
        if let Some(at) = at {
            self.fields[at].control = Control::Text(Input::new(value));
            self.focus = at;
        }
    }

    /// Returns the value of the field with this label.
    fn value(&self, label: &str) -> &str {
        self.fields
            .iter()
            .find(|field| field.label == label)
            .map_or("", Field::value)
    }

    fn chosen(&self, label: &str) -> usize {
        let field = self.fields.iter().find(|field| field.label == label);
        match field.map(|field| &field.control) {
            Some(Control::Choice { at, .. }) => *at,
            _ => 0,
        }
    }

    fn reason(&self) -> Option<String> {
        let reason = self.value("Reason");
        (!reason.is_empty()).then(|| reason.to_owned())
    }

    /// Describes the present values in one line.
    pub fn now(&self, data: &Data) -> String {
        match &self.subject {
            Subject::Quota(subject) => subject.now(data),
            Subject::Policy(subject) => subject.now(data),
            Subject::Share(subject) => subject.now(data),
            Subject::Signal(subject) => subject.now(data),
        }
    }

    /// Returns the checks for applying the dialog.
    pub fn checks(&self, data: &Data) -> Vec<Check> {
        match &self.subject {
            Subject::Quota(subject) => subject.checks(self, data),
            Subject::Policy(subject) => subject.checks(self, data),
            Subject::Share(subject) => subject.checks(self, data),
            Subject::Signal(subject) => subject.checks(self),
        }
    }

    /// Returns what the values would change, and the device; `None` if they change no turns.
    pub fn what_if(&self, data: &Data) -> Option<(usize, WhatIf)> {
        match &self.subject {
            Subject::Quota(_) | Subject::Signal(_) => None,
            Subject::Policy(subject) => subject.what_if(self, data),
            Subject::Share(subject) => subject.what_if(self, data),
        }
    }

    /// Returns the task that applies the dialog, or the reason why it cannot be applied.
    pub fn task(&self, data: &Data) -> Result<Task, String> {
        match &self.subject {
            Subject::Signal(subject) => subject.task(self),
            _ => Ok(Task::Edit(Box::new(self.request(data)?))),
        }
    }

    /// Returns the edit, or the reason why there is none.
    fn request(&self, data: &Data) -> Result<EditRequest, String> {
        match &self.subject {
            Subject::Signal(_) => Err("a signal is no edit".into()),
            Subject::Quota(subject) => subject.request(self, data),
            Subject::Policy(subject) => subject.request(self),
            Subject::Share(subject) => subject.request(self, data),
        }
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Outcome {
        let buttons = self.fields.len() + 2;
        match key.code {
            KeyCode::Esc => return Outcome::Close,
            KeyCode::Tab | KeyCode::Down => self.go_to((self.focus + 1) % buttons),
            KeyCode::BackTab | KeyCode::Up => self.go_to((self.focus + buttons - 1) % buttons),
            KeyCode::Enter if self.focus == self.fields.len() + 1 => return Outcome::Close,
            KeyCode::Enter if matches!(self.progress, Progress::Waiting(_)) => {
                return Outcome::Close;
            }
            KeyCode::Enter => return Outcome::Apply,
            _ => self.edit(key),
        }
        Outcome::Stay
    }

    fn go_to(&mut self, focus: usize) {
        self.focus = focus;
        self.fresh = true;
    }

    /// Handles pasted text, if the cursor is in a text field.
    pub fn paste(&mut self, text: &str) {
        let field = self.fields.get(self.focus).map(|field| &field.control);
        if matches!(field, Some(Control::Text(_))) {
            text.chars()
                .for_each(|letter| self.edit(KeyCode::Char(letter).into()));
        }
    }

    fn edit(&mut self, key: KeyEvent) {
        if matches!(self.progress, Progress::Sent | Progress::Waiting(_)) {
            return;
        }
        if let (Subject::Signal(_), KeyCode::Char('0'..='9')) = (&self.subject, key.code)
            && self.focus != signal::PID_AT
        {
            // The pid is the only number in this dialog.
            self.go_to(signal::PID_AT);
        }
        let fresh = std::mem::take(&mut self.fresh);
        let Some(field) = self.fields.get_mut(self.focus) else {
            return;
        };
        self.progress = Progress::Editing;
        let old = field.value().to_owned();
        match &mut field.control {
            Control::Text(input) => {
                let replaces = matches!(
                    key.code,
                    KeyCode::Char(_) | KeyCode::Backspace | KeyCode::Delete
                );
                if fresh && replaces && !key.modifiers.contains(KeyModifiers::CONTROL) {
                    input.reset();
                }
                input.handle_event(&Event::Key(key));
            }
            Control::Choice { options, at } => match key.code {
                KeyCode::Left => *at = (*at + options.len() - 1) % options.len(),
                KeyCode::Right | KeyCode::Char(' ') => *at = (*at + 1) % options.len(),
                _ => {}
            },
        }
        let (label, new) = (field.label, field.value().to_owned());
        if let (Subject::Policy(subject), policy::RULE) = (&self.subject, label) {
            subject.follow(&mut self.fields, &old, &new);
        }
    }
}
