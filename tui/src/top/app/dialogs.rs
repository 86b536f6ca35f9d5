//! Dialogs: which one a key opens, and what its keys do.

use crossterm::event::KeyEvent;

use super::{Next, READ_ONLY, UNMANAGED, say, subject};
use crate::top::dialog::{
    self, Dialog, PolicySubject, Progress, QuotaSubject, ShareSubject, SignalSubject,
};
use crate::top::keys::Action;
use crate::top::overlay::Overlay;
use crate::top::state::{Screen, State, Subject};

/// Opens the dialog that belongs to an action.
pub(super) fn open(state: &mut State, action: Action) {
    let subject = match action {
        // The device of the process that is shown alone, and else the chosen one.
        Action::Policy => match state.subject() {
            Subject::This(who, gpu) if state.choices.screen == Screen::Detail(who) => {
                Some((who, gpu))
            }
            _ => None,
        },
        _ => match subject(state) {
            None => return,
            found => found,
        },
    };
    let data = state.data();
    let gpu = subject.map_or(state.choices.gpu, |(_, gpu)| gpu);
    let process = subject.and_then(|(who, _)| Some((who, data.process(who)?)));
    let dialog = match (action, process) {
        (Action::Policy, _) => PolicySubject::open(data, gpu)
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
    match dialog {
        Ok(dialog) => state.overlay = Some(Overlay::Dialog(Box::new(dialog))),
        Err(why) => say(state, why, true),
    }
}

/// Takes in a key.
pub(super) fn key(state: &mut State, mut dialog: Box<Dialog>, key: KeyEvent) -> Next {
    let mut next = Next::Continue;
    match dialog.key(key) {
        dialog::Outcome::Close => return Next::Continue,
        dialog::Outcome::Stay => {}
        dialog::Outcome::Apply if state.choices.read_only => {
            dialog.progress = Progress::Failed(READ_ONLY.into())
        }
        dialog::Outcome::Apply if dialog.progress == Progress::Sent => {}
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
