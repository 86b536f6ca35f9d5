//! The help: keys, columns and alerts, each from its own table.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::keys::{Action, KEYS, Keymap};
use crate::palette::Role;
use crate::view::{Look, layout, pen::Pen};
use gpushare_observe::findings;
use gpushare_sample::columns::COLUMNS;

/// The column of the texts, behind the longest word.
pub(crate) const ABOUT: u16 = 17;

/// Returns the lines of the help.
pub(crate) fn lines(keymap: &Keymap) -> Vec<(String, String, Role)> {
    let mut lines = Vec::new();
    let heading = |text: &str| (text.to_owned(), String::new(), Role::Title);
    let blank = || (String::new(), String::new(), Role::Text);
    let mut title = "";
    for key in KEYS.iter().filter(|key| key.has_key()) {
        let shown = keymap.shown(key);
        if key.heading != title {
            lines.extend((!title.is_empty()).then(blank));
            lines.push(heading(key.heading));
            title = key.heading;
        }
        // A key that does something else on another screen has one line.
        match lines.iter_mut().find(|(known, ..)| *known == shown) {
            Some((_, about, _)) => *about += &format!("; {}", key.about),
            None => lines.push((shown, key.about.to_owned(), Role::Key)),
        }
    }
    let search = keymap.key_of(Action::Commands);
    lines.push(blank());
    lines.push(heading(&format!("Only in the search ({search})")));
    let unbound = KEYS.iter().filter(|key| !key.has_key());
    lines.extend(unbound.map(|key| (String::new(), key.about.to_owned(), Role::Key)));
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
        (
            "strip",
            "below the lanes, the last hour: ! an alert began, a diamond (or e): an edit was made",
        ),
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
    let mut pen = Pen::new(buffer, layout::centred(area, 95, height), &look.palette);
    let mut inside = pen.dialog("gpushare-top  keys, columns, alerts   Down Up scroll  Esc close");
    let room = usize::from(inside.height());
    let first = scroll.min(lines.len().saturating_sub(room));
    for ((word, about, role), y) in lines[first..].iter().zip(0..inside.height()) {
        inside.put(1, y, word, inside.style(*role));
        inside.put_within(ABOUT, y, about, u16::MAX, inside.style(Role::Text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_line_below_a_heading_and_no_word_runs_into_its_text() {
        let lines = lines(&Keymap::default());
        let words: Vec<&str> = lines
            .iter()
            .take_while(|(word, ..)| word != "Lanes")
            .filter(|(word, _, role)| *role == Role::Key && !word.is_empty())
            .map(|(word, ..)| word.as_str())
            .collect();
        for (at, word) in words.iter().enumerate() {
            assert!(!words[..at].contains(word), "{word} has two lines");
        }
        assert_eq!(lines[0].2, Role::Title);
        for (word, about, _) in lines {
            assert!(
                about.is_empty() || word.len() + 2 <= usize::from(ABOUT),
                "{word} {about}"
            );
        }
    }
}
