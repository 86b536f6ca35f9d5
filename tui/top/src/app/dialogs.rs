//! Dialogs: the keys that open them, and the keys inside them.

use crossterm::event::KeyEvent;

use super::{Next, READ_ONLY, UNMANAGED, questions, say, subjects};
use crate::dialog::{
    self, Dialog, PolicySubject, Progress, QuotaSubject, ShareSubject, SignalSubject,
};
use crate::keys::Action;
use crate::overlay::{Overlay, Question};
use crate::state::{Screen, State, Subject};
use gpushare_observe::finding::Edit;
use gpushare_sample::Who;
use shm_layout::SettingValues;

/// Opens the dialog of an action.
pub(super) fn open(state: &mut State, action: Action) {
    let meant = match action {
        // The device of the process that is shown alone, else the chosen one.
        Action::Policy => match state.subject() {
            Subject::This(who, gpu) if state.choices.screen == Screen::Detail(who) => {
                vec![(who, gpu)]
            }
            _ => Vec::new(),
        },
        _ => match subjects(state) {
            none if none.is_empty() => return,
            some => some,
        },
    };
    if action == Action::Signal && meant.len() > 1 {
        let back = state.choices.keymap.key_of(Action::Back);
        let why = format!("a signal goes to one process at a time; {back} takes the marks away");
        return say(state, &why, true);
    }
    let subject = meant.first().copied();
    let others = meant.len().saturating_sub(1);
    let data = state.data();
    let gpu = subject.map_or(state.choices.gpu, |(_, gpu)| gpu);
    let process = subject.and_then(|(who, _)| Some((who, data.process(who)?)));
    let dialog = match (action, process) {
        (Action::Policy, _) => PolicySubject::open(data, gpu, None)
            .ok_or("this GPU has no lock yet: no process uses it through gpushare"),
        (_, None) => return,
        (Action::Quota, Some((who, process))) => {
            QuotaSubject::open(process, gpu, data.letter(who)).ok_or(UNMANAGED)
        }
        (Action::Signal, Some((who, process))) => SignalSubject::open(process, data.title(who)),
        (Action::Boost, Some((who, process))) => {
            ShareSubject::boost(process, data.letter(who)).ok_or(UNMANAGED)
        }
        (_, Some((who, process))) => ShareSubject::open(process, data.letter(who)).ok_or(UNMANAGED),
    };
    let dialog = dialog.map(|mut dialog| {
        if others > 0 {
            dialog.title += &format!("  and {others} more");
        }
        dialog
    });
    match dialog {
        Ok(dialog) => state.overlay = Some(Overlay::Dialog(Box::new(dialog))),
        Err(why) => say(state, why, true),
    }
}

/// Opens the dialog of an edit with the proposed value, for the process or device of the edit alone. Returns false for an
/// edit that has no dialog.
pub(super) fn propose(state: &mut State, edit: &Edit) -> bool {
    let data = state.data();
    let process = |who: Who| Some((data.process(who)?, data.letter(who)));
    let dialog = match edit {
        Edit::Policy { gpu, .. } => {
            let new = edit.policy(&data.sample).map(|(_, policy)| policy);
            PolicySubject::open(data, *gpu, new)
        }
        Edit::Quota { who, gpu, value } => process(*who)
            .and_then(|(process, letter)| QuotaSubject::open(process, *gpu, letter))
            .map(|mut dialog| {
                dialog.fill("New", value.to_string());
                dialog
            }),
        Edit::Share { who, share } if share.paused.is_keep() => process(*who)
            .and_then(|(process, letter)| ShareSubject::open(process, letter))
            .map(|mut dialog| {
                for (about, value) in SettingValues::of(share).words() {
                    dialog.fill(about.label, value);
                }
                dialog
            }),
        Edit::Share { .. } | Edit::EndTrace(_) => None,
    };
    let Some(dialog) = dialog else {
        return false;
    };
    state.choices.marked.clear();
    state.unfold();
    state.overlay = Some(Overlay::Dialog(Box::new(dialog)));
    true
}

/// Handles a key.
pub(super) fn key(state: &mut State, mut dialog: Box<Dialog>, key: KeyEvent) -> Next {
    let mut next = Next::Continue;
    match dialog.key(key) {
        dialog::Outcome::Close => return Next::Continue,
        dialog::Outcome::Stay => {}
        dialog::Outcome::Apply if state.choices.read_only => {
            dialog.progress = Progress::Failed(READ_ONLY.into())
        }
        dialog::Outcome::Apply if dialog.progress == Progress::Sent => {}
        dialog::Outcome::Apply if is_for_all(state, &dialog) => match for_all(state, &dialog) {
            Ok(question) => {
                state.overlay = Some(Overlay::Question(Box::new(question)));
                return Next::Continue;
            }
            Err(why) => dialog.progress = Progress::Failed(why),
        },
        dialog::Outcome::Apply => match dialog.task(state.data()) {
            Ok(task) => {
                dialog.progress = Progress::Sent;
                next = Next::Do(task);
            }
            Err(why) => dialog.progress = Progress::Failed(why),
        },
    }
    state.overlay = Some(Overlay::Dialog(dialog));
    next
}

/// Reports whether a dialog applies to every marked process.
fn is_for_all(state: &mut State, dialog: &Dialog) -> bool {
    let of_process = matches!(
        dialog.subject,
        dialog::Subject::Quota(_) | dialog::Subject::Share(_)
    );
    of_process && subjects(state).len() > 1
}

/// Returns the question whether all marked processes get the values of the dialog.
fn for_all(state: &mut State, dialog: &Dialog) -> Result<Question, String> {
    let meant = subjects(state);
    let data = state.data();
    let mut tasks = Vec::new();
    for (who, gpu) in &meant {
        let process = data.process(*who).ok_or("one of them has ended")?;
        let letter = data.letter(*who);
        let own = match &dialog.subject {
            dialog::Subject::Quota(_) => QuotaSubject::open(process, *gpu, letter),
            dialog::Subject::Share(share) if share.is_boost() => {
                ShareSubject::boost(process, letter)
            }
            _ => ShareSubject::open(process, letter),
        };
        let mut own = own.ok_or_else(|| format!("{}: {UNMANAGED}", process.name()))?;
        own.fields.clone_from(&dialog.fields);
        let task = own.task(data);
        tasks.push(task.map_err(|why| format!("{}: {why}", process.name()))?);
    }
    let verb = match dialog.subject {
        dialog::Subject::Quota(_) => "Set the quota of",
        _ => "Set the share of",
    };
    let meant: Vec<Who> = meant.into_iter().map(|(who, _)| who).collect();
    Ok(questions::together(data, &meant, verb, Vec::new(), tasks))
}
