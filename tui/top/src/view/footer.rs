//! The last line: a message, the filter being typed, what an edit did, or the keys.

use unicode_width::UnicodeWidthStr;

use super::pen::Pen;
use crate::keys::{Action, KEYS, Place};
use crate::overlay::{FilterLine, Overlay};
use crate::palette::Role;
use crate::state::State;

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    if let Some(Overlay::Filter(line)) = &state.overlay {
        filter(pen, line);
        return;
    }
    if let Some(notice) = &state.choices.notice {
        let role = if notice.bad { Role::Bad } else { Role::Good };
        pen.words(1, 0, &notice.text, pen.style(role));
        return;
    }
    if super::comparison::draw(pen, state) {
        return;
    }
    let place = state.choices.screen.place();
    let mut x = 1;
    if place != Place::Main {
        let back = state.choices.keymap.key_of(Action::Back);
        x = pen.pieces(x, 0, &[(&back, Role::Key), (" back  ", Role::Dim)]);
    }
    for key in KEYS
        .iter()
        .filter(|key| !key.label.is_empty() && key.works_in(place))
    {
        let shown = state.choices.keymap.shown(key);
        let width = shown.width() + 1 + key.label.len();
        if usize::from(x) + width > usize::from(pen.width()) {
            break;
        }
        x = pen.put(x, 0, &shown, pen.style(Role::Key));
        x = pen.put(x, 0, &format!(" {}", key.label), pen.style(Role::Dim)) + 2;
    }
}

fn filter(pen: &mut Pen<'_>, line: &FilterLine) {
    let x = pen.put(1, 0, "filter: ", pen.style(Role::Key));
    let end = pen.put(x, 0, line.input.value(), pen.style(Role::Text));
    let cursor = x + u16::try_from(line.input.visual_cursor()).unwrap_or(0);
    let under = line
        .input
        .value()
        .chars()
        .nth(line.input.cursor())
        .unwrap_or(' ');
    pen.put(cursor, 0, &under.to_string(), pen.style(Role::Selected));
    let help = line
        .error
        .as_deref()
        .unwrap_or("Enter keeps it  Esc drops it   user=alice used>4G state=wait name~x");
    let role = if line.error.is_some() {
        Role::Bad
    } else {
        Role::Dim
    };
    pen.put_within(end + 3, 0, help, u16::MAX, pen.style(role));
}
