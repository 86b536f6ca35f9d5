//! The pane of alerts, one sentence a line; on a small screen the first alert and the number of others.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::pen::Pen;
use super::{Look, layout};
use crate::keys::Action;
use crate::palette::Role;
use crate::state::State;
use gpushare_observe::data::alert::{Alert, Severity};

/// Draws the pane; `keys` is false in printed output, where no keys can be pressed.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State, keys: bool) {
    let alerts = &state.data().alerts;
    let lines = usize::from(pen.height());
    let hidden = alerts.len().saturating_sub(lines);
    for (alert, y) in alerts.iter().take(lines).zip(0..) {
        let mut right = pen.width();
        if hidden > 0 && y + 1 == pen.height() {
            let all = state.choices.keymap.key_of(Action::Alerts);
            let text = format!(" +{hidden} more: {all}");
            pen.put_before(right, y, &text, pen.style(Role::Warn));
            right = right.saturating_sub(width(&text));
        }
        line(pen, y, right, alert, state, keys);
    }
}

/// Draws one alert up to column `right`: its word, its age, its sentence, and at the right its remedy. The sentence is
/// cut first, because the remedy matters more to the reader.
fn line(pen: &mut Pen<'_>, y: u16, right: u16, alert: &Alert, state: &State, keys: bool) {
    let now_ns = state.data().sample.time_ns;
    let letter = |key| state.choices.keymap.letter(key);
    let (mark, role) = sign(alert.severity);
    let mut x = pen.put(0, y, &format!("{mark} {:<8}", alert.word), pen.style(role));
    if let Some(age) = age(alert, now_ns) {
        let text = format!("{age:<4} ");
        if right >= 76 {
            x = pen.put(x, y, &text, pen.style(Role::Dim));
        }
    }
    let remedy = alert.remedy.as_ref().map(|remedy| match keys {
        true => remedy.shown(letter),
        false => remedy.text.clone(),
    });
    let wanted = remedy.as_ref().map_or(0, |text| width(text) + 2);
    let room = right.saturating_sub(x);
    // If less than half of the sentence fits, the remedy is reduced to its key.
    let key = alert.remedy.as_ref().and_then(|remedy| remedy.key);
    let (remedy, wanted) = match (&remedy, key.filter(|_| keys)) {
        (Some(_), Some(key)) if wanted > room / 2 => (Some(format!("[{}]", letter(key))), 5),
        (Some(_), None) if wanted > room / 2 => (None, 0),
        _ => (remedy, wanted),
    };
    let end = pen.put_within(
        x,
        y,
        &alert.sentence,
        room.saturating_sub(wanted),
        pen.style(Role::Text),
    );
    if let Some(remedy) = remedy {
        pen.put_within(
            end + 2,
            y,
            &remedy,
            right.saturating_sub(end + 2),
            pen.style(Role::Key),
        );
    }
}

/// Returns the age of an alert, once it is worth showing.
fn age(alert: &Alert, now_ns: u64) -> Option<String> {
    let age = now_ns.saturating_sub(alert.since_ns);
    (age >= 1_000_000_000).then(|| brief(age))
}

/// Writes a time in at most four characters.
pub(super) fn brief(ns: u64) -> String {
    match ns / 1_000_000_000 {
        seconds @ 0..100 => format!("{seconds}s"),
        seconds @ 100..6000 => format!("{}m", seconds / 60),
        seconds @ 6000..356_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", (seconds / 86400).min(999)),
    }
}

fn width(text: &str) -> u16 {
    u16::try_from(text.width()).unwrap_or(u16::MAX)
}

fn sign(severity: Severity) -> (&'static str, Role) {
    match severity {
        Severity::Warning => ("!", Role::Bad),
        Severity::Note => ("i", Role::Key),
    }
}

/// The column where sentences begin in the list of all alerts.
const SENTENCE: u16 = 12;

/// Draws every alert with its whole sentence.
pub(super) fn all(buffer: &mut Buffer, area: Rect, state: &State, look: &Look, scroll: usize) {
    let alerts = &state.data().alerts;
    let width = area.width.min(118);
    let room = width.saturating_sub(SENTENCE + 3);
    let mut lines: Vec<(String, Role, String, Role)> = Vec::new();
    for alert in alerts {
        let (mark, role) = sign(alert.severity);
        let parts = wrapped(&alert.sentence, room).into_iter();
        let parts = parts.map(|part| (part, Role::Text));
        let letter = |key| state.choices.keymap.letter(key);
        let remedy = alert.remedy.as_ref();
        let mut remedy = remedy.map_or("".to_owned(), |remedy| remedy.shown(letter));
        let since = age(alert, state.data().sample.time_ns);
        if let Some(age) = since {
            let gap = if remedy.is_empty() { "" } else { "   " };
            remedy = format!("{remedy}{gap}since {age}");
        }
        let remedy = (!remedy.is_empty()).then_some((remedy, Role::Key));
        for (at, (part, tone)) in parts.chain(remedy).enumerate() {
            let word = if at == 0 {
                format!("{mark} {}", alert.word)
            } else {
                String::new()
            };
            lines.push((word, role, part, tone));
        }
    }
    if lines.is_empty() {
        lines.push((String::new(), Role::Dim, "no alerts".into(), Role::Text));
    }
    let height = u16::try_from(lines.len() + 3).unwrap_or(u16::MAX);
    let mut pen = Pen::new(buffer, layout::centred(area, width, height), &look.palette);
    let mut inside = pen.dialog(&format!("Alerts  {}", alerts.len()));
    let bottom = inside.height().saturating_sub(1);
    let first = scroll.min(lines.len().saturating_sub(bottom.into()));
    for ((word, role, part, tone), y) in lines[first..].iter().zip(0..bottom) {
        inside.put(1, y, word, inside.style(*role));
        inside.put_within(SENTENCE, y, part, u16::MAX, inside.style(*tone));
    }
    let keys = "Down Up scroll   any other key closes";
    inside.put_within(1, bottom, keys, u16::MAX, inside.style(Role::Dim));
}

/// Wraps a text between words into lines of this width; a word that is wider stays whole.
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
