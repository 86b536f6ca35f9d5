//! The help: keys, columns and alerts, each from its own table.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::pen::Pen;
use super::{Look, layout};
use crate::keys::{KEYS, Keymap};
use crate::palette::Role;
use gpushare_observe::findings;
use gpushare_sample::columns::COLUMNS;

/// Returns the lines of the help.
pub(crate) fn lines(keymap: &Keymap) -> Vec<(String, String, Role)> {
    let mut lines = Vec::new();
    let heading = |text: &str| (text.to_owned(), String::new(), Role::Title);
    let blank = || (String::new(), String::new(), Role::Text);
    lines.push(heading("Keys"));
    lines.extend(
        KEYS.iter()
            .map(|key| (keymap.shown(key), key.about.to_owned(), Role::Key)),
    );
    lines.push(blank());
    lines.push(heading("Lanes"));
    for (sign, about) in [
        ("full", "held the lock throughout this column"),
        (
            "part",
            "the higher, the longer it held; otherwise it waited or was idle",
        ),
        ("wait", "waited for the lock"),
        ("!", "an allocation was denied"),
        ("t", "behind a letter in the table: its calls are traced"),
    ] {
        lines.push((sign.to_owned(), about.to_owned(), Role::Key));
    }
    lines.push(blank());
    lines.push(heading(
        "Columns (the word in front is its name in filters and CSV)",
    ));
    lines.extend(
        COLUMNS
            .iter()
            .map(|column| (column.key.to_owned(), column.about.to_owned(), Role::Key)),
    );
    lines.push(blank());
    lines.push(heading("Alerts"));
    lines.extend(
        findings::alerts().map(|kind| (kind.word.to_owned(), kind.about.to_owned(), Role::Key)),
    );
    lines
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look, keymap: &Keymap, scroll: usize) {
    let lines = lines(keymap);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let mut pen = Pen::new(buffer, layout::centred(area, 90, height), &look.palette);
    let mut inside = pen.dialog("gpushare-top  keys, columns, alerts   Down Up scroll  Esc close");
    let room = usize::from(inside.height());
    let first = scroll.min(lines.len().saturating_sub(room));
    for ((word, about, role), y) in lines[first..].iter().zip(0..inside.height()) {
        inside.put(1, y, word, inside.style(*role));
        inside.put_within(12, y, about, u16::MAX, inside.style(Role::Text));
    }
}
