//! The list of columns: the visible ones, and the one that the list is sorted by.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::palette::Role;
use crate::state::State;
use crate::view::{Look, layout, pen::Pen};
use gpushare_sample::columns::COLUMNS;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look, at: usize) {
    let choices = &state.choices;
    let height = u16::try_from(COLUMNS.len() + 3).unwrap_or(u16::MAX);
    let mut pen = Pen::new(buffer, layout::centred(area, 86, height), &look.palette);
    let mut inside = pen.dialog("Columns");
    let bottom = inside.height().saturating_sub(1);
    let lines = usize::from(bottom);
    let first = (at + 1).saturating_sub(lines);
    let glyphs = inside.glyphs();
    let arrow = |descending| if descending { glyphs.down } else { glyphs.up };
    for ((number, column), y) in COLUMNS.iter().enumerate().skip(first).zip(0..bottom) {
        let shown = choices.shows_column(number);
        let check = if shown { "[x]" } else { "[ ]" };
        let sorted = match choices.then {
            _ if number == choices.sort => format!("1{}", arrow(choices.descending)),
            Some((then, descending)) if number == then => format!("2{}", arrow(descending)),
            _ => String::new(),
        };
        let role = if shown { Role::Text } else { Role::Dim };
        inside.put(1, y, check, inside.style(Role::Key));
        inside.put(5, y, &sorted, inside.style(Role::Title));
        inside.put_within(8, y, column.key, 14, inside.style(role));
        inside.put_within(23, y, column.about, u16::MAX, inside.style(Role::Dim));
        if number == at {
            let style = inside.style(Role::Selected);
            inside.mark_line(y, style);
        }
    }
    let keys = "Enter sort by it   2 then by it   Space show it or not   r turn   Esc close";
    inside.hint(1, bottom, keys, inside.style(Role::Key));
}
