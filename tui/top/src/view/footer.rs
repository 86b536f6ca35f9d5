//! The last line: a message, the filter being typed, what happened at the moment of the cursor, what an edit did, or the keys.

use unicode_width::UnicodeWidthStr;

use super::Look;
use super::pen::Pen;
use crate::keys::{Action, KEYS, Place};
use crate::overlay::{FilterLine, Overlay};
use crate::palette::Role;
use crate::state::State;
use gpushare_base::text::edits::in_words;
use gpushare_base::text::plain::plain;
use gpushare_control::audit::Entry;

pub(super) fn draw(pen: &mut Pen<'_>, state: &State, look: &Look) {
    if let Some(Overlay::Filter(line)) = &state.overlay {
        filter(pen, line);
        return;
    }
    if let Some(Overlay::Undo(entry)) = &state.overlay {
        undo(pen, entry.as_deref());
        return;
    }
    if let Some(notice) = &state.choices.notice {
        let role = if notice.bad { Role::Bad } else { Role::Good };
        pen.words(1, 0, &notice.text, pen.style(role));
        return;
    }
    if super::moment::draw(pen, state, look) || super::comparison::draw(pen, state) {
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

/// Asks whether to undo an edit. The keys come first, so that they are never cut.
fn undo(pen: &mut Pen<'_>, entry: Option<&Entry>) {
    let Some(entry) = entry else {
        pen.put(1, 0, "looking for the newest edit", pen.style(Role::Dim));
        return;
    };
    let record = &entry.record;
    let old = record.old.as_deref().unwrap_or("none");
    let change = in_words(Some(&record.new), old, "back to");
    let pieces = [
        ("y", Role::Key),
        (" undo  ", Role::Dim),
        ("other keys", Role::Key),
        (" no  ", Role::Dim),
    ];
    let x = pen.pieces(1, 0, &pieces);
    let mut text = format!("undo {}: {change}?", record.target);
    if text.width() > usize::from(pen.width().saturating_sub(x + 1)) {
        // The value that comes back matters more than the one that goes.
        text = format!(
            "undo {}: back to {}?",
            record.target,
            in_words(None, old, "")
        );
    }
    pen.words(x + 1, 0, &plain(&text), pen.style(Role::Title));
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
