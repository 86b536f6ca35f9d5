//! The pane of alerts, one sentence a line; on a small screen the first alert and the number of others. The lists of
//! all alerts and of the reasons why jobs are slow.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr as _;

use super::pen::Pen;
use super::{Look, layout, wrapped};
use crate::keys::Action;
use crate::overlay::Findings;
use crate::palette::Role;
use crate::state::State;
use gpushare_observe::finding::{Finding, Severity};

/// Draws the pane; `keys` is false in printed output, where no keys can be pressed.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State, keys: bool) {
    let alerts = &state.data().alerts;
    let lines = usize::from(pen.height());
    let hidden = alerts.len().saturating_sub(lines);
    for ((at, alert), y) in alerts.iter().enumerate().take(lines).zip(0..) {
        let mut right = pen.width();
        if hidden > 0 && y + 1 == pen.height() {
            let all = state.choices.keymap.key_of(Action::Alerts);
            let text = format!(" +{hidden} more: {all}");
            pen.put_before(right, y, &text, pen.style(Role::Warn));
            right = right.saturating_sub(width(&text));
        }
        let key = keys.then(|| {
            format!(
                "[{}{}]",
                state.choices.keymap.key_of(Action::Alerts),
                at + 1
            )
        });
        line(pen, y, right, alert, key, state.data().sample.time_ns);
    }
}

/// Draws one alert up to column `right`: its word, its age, its sentence, and at the right its remedy behind the keys that
/// start it. The sentence is cut first, because the remedy matters more to the reader.
fn line(pen: &mut Pen<'_>, y: u16, right: u16, alert: &Finding, key: Option<String>, now_ns: u64) {
    let (mark, role) = sign(alert.kind.severity);
    let mut x = pen.put(
        0,
        y,
        &format!("{mark} {:<8}", alert.kind.word),
        pen.style(role),
    );
    if let Some(age) = age(alert, now_ns) {
        let text = format!("{age:<4} ");
        if right >= 76 {
            x = pen.put(x, y, &text, pen.style(Role::Dim));
        }
    }
    let key = key.filter(|_| {
        alert
            .remedy
            .as_ref()
            .is_some_and(|remedy| !remedy.edits.is_empty())
    });
    let remedy = alert.remedy.as_ref().map(|remedy| match &key {
        Some(key) => format!("{key} {}", remedy.text),
        None => remedy.text.clone(),
    });
    let room = right.saturating_sub(x);
    // If less than half of the sentence fits, the remedy is reduced to its keys.
    let wanted = |text: &String| width(text) + 2;
    let remedy = match remedy {
        Some(text) if wanted(&text) > room / 2 => key,
        remedy => remedy,
    };
    let end = pen.put_within(
        x,
        y,
        &alert.sentence(),
        room.saturating_sub(remedy.as_ref().map_or(0, wanted)),
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

/// Returns the age of an alert, once it is worth showing: `21s`, or `>21s` if it was so before the first look.
fn age(alert: &Finding, now_ns: u64) -> Option<String> {
    let age = now_ns.saturating_sub(alert.since_ns);
    let more = if alert.is_older { ">" } else { "" };
    (age >= 1_000_000_000).then(|| format!("{more}{}", brief(age)))
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

/// Number of findings that a number key reaches.
const KEYS: usize = 9;

/// Draws a list of findings with their whole sentences, their remedies and the costs.
pub(super) fn list(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    look: &Look,
    which: Findings,
    at: usize,
) {
    let found = state.findings(which);
    let at = at.min(found.len().saturating_sub(1));
    let gpu = state.choices.gpu;
    let (title, empty, column, enter) = match which {
        Findings::Alerts => (
            format!("Alerts  {}", found.len()),
            "no alerts".to_owned(),
            12,
            "Enter or its number opens the remedy",
        ),
        Findings::Why => (
            format!("Why is it slow?  GPU{gpu}"),
            format!("no job of gpushare is on GPU{gpu}"),
            2,
            "Enter or its number tries the remedy for ten minutes (asks first)",
        ),
    };
    let width = area.width.min(118);
    let room = width.saturating_sub(column + 3);
    let mut lines: Vec<(usize, String, Role, String, Role)> = Vec::new();
    for (number, finding) in found.iter().enumerate() {
        let (mark, role) = sign(finding.kind.severity);
        let sentence = wrapped(&finding.sentence(), room).into_iter();
        let remedy = remedy(finding, number).map_or_else(Vec::new, |text| wrapped(&text, room));
        let parts = sentence.map(|part| (part, Role::Text));
        let parts = parts.chain(remedy.into_iter().map(|part| (part, Role::Key)));
        let mut parts: Vec<(String, Role)> = parts.collect();
        let mut words = Vec::new();
        if which == Findings::Alerts {
            words.push((format!("{mark} {}", finding.kind.word), role));
            let age = age(finding, state.data().sample.time_ns);
            words.extend(age.map(|age| (format!("  {age}"), Role::Dim)));
        }
        let height = parts.len().max(words.len());
        parts.resize(height, (String::new(), Role::Text));
        words.resize(height, (String::new(), Role::Text));
        for ((word, role), (part, tone)) in words.into_iter().zip(parts) {
            lines.push((number, word, role, part, tone));
        }
    }
    if lines.is_empty() {
        lines.push((0, String::new(), Role::Dim, empty, Role::Dim));
    }
    let height = u16::try_from(lines.len() + 3).unwrap_or(u16::MAX);
    let mut pen = Pen::new(buffer, layout::centred(area, width, height), &look.palette);
    let mut inside = pen.dialog(&title);
    let bottom = inside.height().saturating_sub(1);
    let begins = lines.partition_point(|(number, ..)| *number < at);
    let ends = lines.partition_point(|(number, ..)| *number <= at);
    // An entry that does not fit is shown from its beginning.
    let first = ends.saturating_sub(bottom.into()).min(begins);
    for ((number, word, role, part, tone), y) in lines[first..].iter().zip(0..bottom) {
        if *number == at && !found.is_empty() {
            inside.put(0, y, inside.glyphs().holder, inside.style(Role::Title));
        }
        inside.put(2, y, word, inside.style(*role));
        inside.put_within(column, y, part, u16::MAX, inside.style(*tone));
    }
    let keys = format!("Down Up select   {enter}   Esc close");
    inside.put_within(1, bottom, &keys, u16::MAX, inside.style(Role::Dim));
}

/// Returns the remedy in a list, behind the number that starts it.
fn remedy(finding: &Finding, at: usize) -> Option<String> {
    let text = finding.proposal()?;
    let remedy = finding.remedy.as_ref()?;
    Some(match remedy.edits.is_empty() {
        false if at < KEYS => format!("[{}] {text}", at + 1),
        _ => text,
    })
}
