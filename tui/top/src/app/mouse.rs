//! The actions of the mouse: it selects, sorts, changes the device, shows a moment, and opens the remedy of an alert.

use crossterm::event::{KeyCode, KeyEvent};

use super::{Next, act, findings, key, say};
use crate::keys::Action;
use crate::overlay::Overlay;
use crate::state::{Grip, Hit, Pulled, State, Subject};
use gpushare_base::text::units::{format_size, human_size};

/// Handles a click. A second click on the same row shows the process alone.
pub fn click(state: &mut State, hit: Hit) -> Next {
    if state.overlay.is_some() {
        return Next::Continue;
    }
    state.choices.notice = None;
    match hit {
        Hit::Process(who, gpu) if state.subject() == Subject::This(who, gpu) => {
            return act(state, Action::Detail);
        }
        Hit::Process(who, gpu) => {
            state.choices.selected = Some(who);
            state.show_gpu(gpu);
            state.unfold();
        }
        Hit::Group(who, gpu) => {
            state.choices.selected = Some(who);
            state.show_gpu(gpu);
            state.fold();
        }
        Hit::Heading(column) => state.choices.sort_by(column),
        Hit::Gpu(gpu) => state.show_gpu(gpu),
        Hit::Alert(at) => return remedy(state, at),
    }
    Next::Continue
}

/// Handles a movement with the button pressed: shows the effect of releasing the button here.
pub fn pull(state: &mut State, pulled: Option<Pulled>) {
    let text = match pulled {
        None => return,
        Some(Pulled::Quota(who, gpu, bytes)) => format!(
            "quota of {} on GPU{gpu}: {}; let go to set it",
            state.data().title(who),
            human_size(bytes)
        ),
        Some(Pulled::Moment(at_ns)) => {
            state.choices.notice = None;
            state.look_at(at_ns);
            return;
        }
    };
    say(state, &text, false);
}

/// Handles the release of the button. A quota goes to its dialog first, so that an accidental drag changes nothing.
pub fn let_go(state: &mut State, pulled: Option<Pulled>) -> Next {
    state.choices.grip = None;
    match pulled {
        None | Some(Pulled::Moment(_)) => Next::Continue,
        Some(Pulled::Quota(who, gpu, bytes)) => {
            state.choices.selected = Some(who);
            state.show_gpu(gpu);
            state.unfold();
            let next = act(state, Action::Quota);
            if let Some(Overlay::Dialog(dialog)) = &mut state.overlay {
                dialog.paste(&format_size(bytes));
            }
            state.pin_rows();
            next
        }
    }
}

/// Opens the remedy of an alert.
fn remedy(state: &mut State, at: usize) -> Next {
    let Some(alert) = state.data().alerts.get(at).cloned() else {
        return Next::Continue;
    };
    let next = findings::open(state, &alert);
    state.pin_rows();
    next
}

/// Zooms the lanes if the mouse is there, else scrolls the list that has the keyboard.
pub fn scroll(state: &mut State, by: isize, grip: Option<Grip>) -> Next {
    if grip.is_some_and(|grip| !matches!(grip, Grip::Quota(..))) && state.overlay.is_none() {
        return act(state, Action::Zoom(by));
    }
    let code = if by > 0 { KeyCode::Down } else { KeyCode::Up };
    key(state, KeyEvent::from(code))
}
