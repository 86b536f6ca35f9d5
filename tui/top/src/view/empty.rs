//! The screen without a process: the way to start one.

use super::pen::Pen;
use crate::keys::Action;
use crate::palette::Role;
use crate::state::State;
use gpushare_observe::data::log::Showing;
use gpushare_sample::What;

/// Number of lines of the pane.
pub(super) const HEIGHT: u16 = 13;

/// Reports whether this screen is shown: no process uses a GPU at the shown moment.
pub(super) fn is_shown(state: &State) -> bool {
    state.has_details() && state.data().sample.processes.is_empty()
}

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    let data = state.data();
    let sample = &data.sample;
    let mut events = data.log.newest(Showing::Notable, None);
    let (title, text) = match events.any(|event| matches!(event.what, What::Exit { .. })) {
        true => (
            "All processes have ended",
            "No process uses a GPU through gpushare now. Start one, unchanged:",
        ),
        false => (
            "No process yet",
            "No process uses a GPU through gpushare yet. Start one, unchanged:",
        ),
    };
    let mut inside = pen.pane(title, "");
    let waiting = sample
        .segment
        .waiting
        .as_deref()
        .unwrap_or("the segment is there and empty");
    let quit = state.choices.keymap.key_of(Action::Quit);
    let updates = format!("This screen updates when a process starts. {quit} quits.");
    let lines = [
        (text, Role::Title),
        ("", Role::Text),
        ("    gpushare run -- python train.py", Role::Key),
        (
            "    gpushare run --memory 8GiB --name trainer -- ./my-program",
            Role::Key,
        ),
        ("", Role::Text),
        ("Or watch it work first, with or without a GPU:", Role::Text),
        ("", Role::Text),
        ("    gpushare demo", Role::Key),
        ("", Role::Text),
        (waiting, Role::Dim),
        (&updates, Role::Dim),
    ];
    let top = inside.height().saturating_sub(lines.len() as u16) / 3;
    for ((text, role), y) in lines.into_iter().zip(top..) {
        inside.put_within(2, y, text, u16::MAX, inside.style(role));
    }
}
