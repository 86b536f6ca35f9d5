//! What is wrong now, one sentence a line; on a small screen the first, and how many more.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::pen::Pen;
use super::{Look, layout};
use crate::top::data::alert::Severity;
use crate::top::palette::Role;
use crate::top::state::State;

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    let alerts = &state.data().alerts;
    let lines = usize::from(pen.height());
    for (alert, y) in alerts.iter().take(lines).zip(0..) {
        let (mark, role) = sign(alert.severity);
        let x = pen.put(0, y, &format!("{mark} {:<8}", alert.word), pen.style(role));
        pen.put_within(x, y, &alert.sentence, u16::MAX, pen.style(Role::Text));
    }
    let hidden = alerts.len().saturating_sub(lines);
    if hidden > 0 && lines > 0 {
        let text = format!(" +{hidden} more: !");
        pen.put_before(pen.width(), pen.height() - 1, &text, pen.style(Role::Warn));
    }
}

fn sign(severity: Severity) -> (&'static str, Role) {
    match severity {
        Severity::Warning => ("!", Role::Bad),
        Severity::Note => ("i", Role::Key),
    }
}

/// Where sentences begin in the list of all.
const SENTENCE: u16 = 12;

/// Every alert with its whole sentence.
pub(super) fn all(buffer: &mut Buffer, area: Rect, state: &State, look: &Look, scroll: usize) {
    let alerts = &state.data().alerts;
    let width = area.width.min(118);
    let room = width.saturating_sub(SENTENCE + 3);
    let mut lines: Vec<(String, Role, String)> = Vec::new();
    for alert in alerts {
        let (mark, role) = sign(alert.severity);
        for (at, part) in wrapped(&alert.sentence, room).into_iter().enumerate() {
            let word = if at == 0 {
                format!("{mark} {}", alert.word)
            } else {
                String::new()
            };
            lines.push((word, role, part));
        }
    }
    if lines.is_empty() {
        lines.push((String::new(), Role::Dim, "no alerts".into()));
    }
    let height = u16::try_from(lines.len() + 3).unwrap_or(u16::MAX);
    let mut pen = Pen::new(buffer, layout::centred(area, width, height), &look.palette);
    let mut inside = pen.dialog(&format!("Alerts  {}", alerts.len()));
    let bottom = inside.height().saturating_sub(1);
    let first = scroll.min(lines.len().saturating_sub(bottom.into()));
    for ((word, role, part), y) in lines[first..].iter().zip(0..bottom) {
        inside.put(1, y, word, inside.style(*role));
        inside.put_within(SENTENCE, y, part, u16::MAX, inside.style(Role::Text));
    }
    let keys = "Down Up scroll   any other key closes";
    inside.put_within(1, bottom, keys, u16::MAX, inside.style(Role::Dim));
}

/// Text broken between words into lines of this width; a word that is wider than that stays whole.
pub(super) fn wrapped(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one from the start");
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}
