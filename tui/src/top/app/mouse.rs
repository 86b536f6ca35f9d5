//! What the mouse does: it selects, sorts, turns to a device, and presses the key that an alert proposes.

use crossterm::event::{KeyCode, KeyEvent};

use super::{Next, act, key};
use crate::top::keys::{self, Action};
use crate::top::state::{Hit, State, Subject};

/// Takes in a click. A second one on the same row shows the process alone.
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
        }
        Hit::Heading(column) => state.choices.sort_by(column),
        Hit::Gpu(gpu) => state.show_gpu(gpu),
        Hit::Alert(at) => return remedy(state, at),
    }
    Next::Continue
}

/// Selects what an alert is about and presses the key that helps.
fn remedy(state: &mut State, at: usize) -> Next {
    let Some(alert) = state.data().alerts.get(at).cloned() else {
        return Next::Continue;
    };
    if let Some(gpu) = alert.gpu {
        state.show_gpu(gpu);
    }
    state.choices.selected = alert.who.or(state.choices.selected);
    let key = alert.remedy.as_ref().and_then(|remedy| remedy.key);
    let Some(key) = key else {
        return act(state, Action::Alerts);
    };
    let place = state.choices.screen.place();
    let action = keys::action(KeyEvent::from(KeyCode::Char(key)), place);
    let next = action.map_or(Next::Continue, |action| act(state, action));
    state.pin_rows();
    next
}

/// Scrolls what has the keyboard.
pub fn scroll(state: &mut State, by: isize) -> Next {
    let code = if by > 0 { KeyCode::Down } else { KeyCode::Up };
    key(state, KeyEvent::from(code))
}
