//! Overlays: dialogs, questions, lists and the help, drawn over the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Look, findings};
use crate::keys::Keymap;
use crate::overlay::Overlay;
use crate::state::State;

mod about;
mod audit;
mod columns;
mod commands;
mod dialog;
mod help;
mod question;

/// Draws the overlay, if there is one. A filter and an undo are in the footer.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look) {
    match &state.overlay {
        None | Some(Overlay::Filter(_) | Overlay::Undo(_)) => {}
        Some(Overlay::Help(scroll)) => {
            help::draw(buffer, area, look, &state.choices.keymap, *scroll)
        }
        Some(Overlay::Findings(which, at)) => {
            findings::list(buffer, area, state, look, *which, *at);
        }
        Some(Overlay::Dialog(dialog)) => dialog::draw(buffer, area, state, look, dialog),
        Some(Overlay::Audit(list)) => audit::draw(buffer, area, state, look, list),
        Some(Overlay::About(about)) => about::draw(buffer, area, state, look, about),
        Some(Overlay::Columns(at)) => columns::draw(buffer, area, state, look, *at),
        Some(Overlay::Commands(commands)) => {
            commands::draw(buffer, area, state, look, commands);
        }
        Some(Overlay::Question(question)) => question::draw(buffer, area, look, question),
    }
}

/// Returns the number of lines of the help.
pub fn help_lines() -> usize {
    help::lines(&Keymap::default()).len()
}
