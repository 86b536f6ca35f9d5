//! The dialog that sends a signal to one process, only after its pid was typed.

use super::{Check, Dialog, Field, Progress, Subject};
use crate::operator::Task;
use gpushare_base::host::signal::{SIGNALS, Signalled, started};
use gpushare_observe::data::Data;
use gpushare_sample::{ProcessSample, ProcessState};

/// The field for the pid.
const PID: &str = "Its pid";
/// The position of that field.
pub(super) const PID_AT: usize = 1;

/// The process that gets the signal.
#[derive(Clone, Debug)]
pub struct SignalSubject {
    pid: u32,
    /// The start time of the process when the dialog opened: field 22 of its `stat`.
    started: u64,
    title: String,
}

impl SignalSubject {
    /// Opens the dialog for a process; the error is the reason why it cannot be opened.
    pub fn open(process: &ProcessSample, title: String) -> Result<Dialog, &'static str> {
        let Some(pid) = process.pid else {
            return Err("this process has no pid that can be seen from here");
        };
        let Some(started) = started(pid) else {
            return Err("that process has ended");
        };
        let words = SIGNALS.map(|(word, ..)| word);
        // A stopped process is usually meant to continue.
        let at = if process.state == ProcessState::Stopped {
            4
        } else {
            0
        };
        Ok(Dialog {
            title: format!(
                "Signal  {title} on {} ({})",
                super::gpus(process),
                process.user
            ),
            fields: vec![
                Field::choice("Signal", &words, at),
                Field::text(PID, "", format!("type {pid} to confirm")),
            ],
            subject: Subject::Signal(Self {
                pid,
                started,
                title,
            }),
            focus: 0,
            progress: Progress::Editing,
            fresh: true,
        })
    }

    pub(super) fn now(&self, data: &Data) -> String {
        let lives = data
            .sample
            .processes
            .iter()
            .find(|p| p.pid == Some(self.pid));
        lives.map_or("the process has ended".into(), |process| {
            format!("{}, {}", process.state.word(), process.identity.exe)
        })
    }

    pub(super) fn checks(&self, dialog: &Dialog) -> Vec<Check> {
        let (word, _, about) = SIGNALS[dialog.chosen("Signal").min(SIGNALS.len() - 1)];
        let text = format!("SIG{word}: {about}");
        let mut checks = vec![match word {
            "CONT" => Check::good(text),
            _ => Check::warn(text),
        }];
        if dialog.value(PID) != self.pid.to_string() {
            checks.push(Check::bad(format!(
                "nothing is sent before its pid is typed: {}",
                self.pid
            )));
        }
        checks
    }

    pub(super) fn task(&self, dialog: &Dialog) -> Result<Task, String> {
        if dialog.value(PID) != self.pid.to_string() {
            return Err(format!("type its pid to confirm: {}", self.pid));
        }
        let (word, signal, _) = SIGNALS[dialog.chosen("Signal").min(SIGNALS.len() - 1)];
        Ok(Task::Signal(Signalled {
            pid: self.pid,
            started: self.started,
            signal,
            word,
            title: self.title.clone(),
        }))
    }
}
