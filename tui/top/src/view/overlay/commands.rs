//! The list of actions, narrowed down by the typed text.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::overlay::Commands;
use crate::palette::Role;
use crate::state::State;
use crate::view::{Look, layout, pen::Pen};

/// Maximum number of lines.
const LINES: usize = 20;

pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    look: &Look,
    commands: &Commands,
) {
    let found = commands.found(state.choices.screen.place());
    let wanted = found.len().clamp(1, LINES) + 4;
    let height = u16::try_from(wanted).unwrap_or(u16::MAX);
    let mut pen = Pen::new(buffer, layout::centred(area, 78, height), &look.palette);
    let mut inside = pen.dialog("What to do");
    let x = inside.put(1, 0, ": ", inside.style(Role::Key));
    let end = inside.put(x, 0, commands.input.value(), inside.style(Role::Text));
    inside.put(end, 0, " ", inside.style(Role::Selected));
    let bottom = inside.height().saturating_sub(1);
    let lines = usize::from(bottom.saturating_sub(1));
    let at = commands.at.min(found.len().saturating_sub(1));
    let first = (at + 1).saturating_sub(lines);
    for ((number, key), y) in found.iter().enumerate().skip(first).zip(1..bottom) {
        let shown = state.choices.keymap.shown(key);
        inside.put(1, y, &shown, inside.style(Role::Key));
        inside.put_within(8, y, key.about, u16::MAX, inside.style(Role::Text));
        if number == at {
            let style = inside.style(Role::Selected);
            inside.mark_line(y, style);
        }
    }
    if found.is_empty() {
        let dim = inside.style(Role::Dim);
        inside.put_within(
            1,
            1,
            "nothing is called that; Backspace shows more",
            u16::MAX,
            dim,
        );
    }
    let keys = "Enter does it   Down Up select   Esc close";
    inside.hint(1, bottom, keys, inside.style(Role::Dim));
}
