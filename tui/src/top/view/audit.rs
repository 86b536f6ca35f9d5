//! The edits so far, newest first.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::pen::Pen;
use super::{Look, layout};
use crate::edit::audit::{Entry, Outcome};
use crate::top::dialog::{Verdict, foresee};
use crate::top::overlay::AuditList;
use crate::top::palette::Role;
use crate::top::state::State;

/// Title, width and text of each column.
type Column = (&'static str, u16, fn(&Entry, &Look) -> String);

const COLUMNS: [Column; 8] = [
    ("#", 4, |entry, _| format!("{:>3}", entry.number)),
    ("TIME", 9, |entry, look| time(entry, look)),
    ("WHO", 13, |entry, _| entry.record.who.clone()),
    ("WHERE", 6, |entry, _| {
        entry.record.r#where.word().to_owned()
    }),
    ("TARGET", 20, |entry, _| entry.record.target.clone()),
    ("RESULT", 8, |entry, _| result(entry)),
    ("GEN", 6, |entry, _| {
        entry
            .record
            .generation
            .map(|g| g.to_string())
            .unwrap_or_default()
    }),
    ("CHANGE", 40, |entry, look| change(entry, look)),
];

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look, list: &AuditList) {
    let entries = list.entries.as_deref().unwrap_or_default();
    let question = list.asking.then(|| list.entry()).flatten();
    let question = question.map_or_else(Vec::new, |entry| question_about(entry, state, look));
    let height = u16::try_from(entries.len() + question.len() + 6)
        .unwrap_or(u16::MAX)
        .clamp(10, 30);
    let width = area.width.min(118);
    let mut pen = Pen::new(buffer, layout::centred(area, width, height), &look.palette);
    let mut inside = pen.dialog(&format!("Edits  {}", list.path));
    let mut x = 1;
    for (title, width, _) in COLUMNS {
        inside.put(x, 0, title, inside.style(Role::Dim));
        x += width;
    }
    if entries.is_empty() {
        let text = if list.entries.is_some() {
            "no edits yet"
        } else {
            "reading …"
        };
        inside.put(1, 1, text, inside.style(Role::Dim));
    }
    let lines = usize::from(inside.height().saturating_sub(3)).saturating_sub(question.len());
    let first = (list.selected + 1).saturating_sub(lines);
    for ((at, entry), y) in entries.iter().enumerate().skip(first).take(lines).zip(1..) {
        line(&mut inside, y, entry, look);
        if at == list.selected {
            let style = inside.style(Role::Selected);
            inside.mark_line(y, style);
        }
    }
    let asked = inside
        .height()
        .saturating_sub(1 + u16::try_from(question.len()).unwrap_or(0));
    for ((text, role), y) in question.iter().zip(asked..) {
        inside.put_within(1, y, text, u16::MAX, inside.style(*role));
    }
    let help = match (&list.message, state.choices.read_only, list.damaged) {
        _ if list.asking => "y or Enter: undo   any other key: no".into(),
        (Some(message), _, _) => message.clone(),
        (None, true, _) => "read-only: nothing can be undone here   Esc close".into(),
        (None, false, 0) => {
            "u or Enter: undo the selected edit (asks first)   Down Up select   Esc close".into()
        }
        (None, false, damaged) => {
            format!("{damaged} lines of the log cannot be read   u undo   Esc close")
        }
    };
    let bottom = inside.height().saturating_sub(1);
    inside.put_within(1, bottom, &help, u16::MAX, inside.style(Role::Key));
}

/// What taking an edit back means.
fn question_about(entry: &Entry, state: &State, look: &Look) -> Vec<(String, Role)> {
    let record = &entry.record;
    let mut lines = vec![(
        format!(
            "Undo edit {} of {} at {}?  {}: {}",
            entry.number,
            record.who,
            time(entry, look),
            record.target,
            record.new
        ),
        Role::Title,
    )];
    if let Some(old) = &record.old {
        lines.push((format!("restores: {old}"), Role::Text));
    }
    let effects = record.restore.as_ref();
    let effects = effects.map_or_else(Vec::new, |change| foresee(state.data(), change));
    lines.extend(effects.into_iter().map(|check| match check.verdict {
        Verdict::Good => (check.text, Role::Text),
        Verdict::Warn => (check.text, Role::Warn),
        Verdict::Bad => (check.text, Role::Bad),
    }));
    lines
}

fn line(pen: &mut Pen<'_>, y: u16, entry: &Entry, look: &Look) {
    let refused = entry.record.result == Outcome::Refused;
    let mut x = 1;
    for (title, width, text) in COLUMNS {
        let role = if refused && title == "RESULT" {
            Role::Bad
        } else {
            Role::Text
        };
        let room = if title == "CHANGE" {
            u16::MAX
        } else {
            width - 1
        };
        pen.put_within(x, y, &text(entry, look), room, pen.style(role));
        x += width;
    }
}

fn time(entry: &Entry, look: &Look) -> String {
    let at: Option<Timestamp> = entry.record.time.parse().ok();
    at.map(|at| {
        at.to_zoned(look.zone.clone())
            .strftime("%H:%M:%S")
            .to_string()
    })
    .unwrap_or_default()
}

fn result(entry: &Entry) -> String {
    match (entry.record.result, entry.record.undoes) {
        (Outcome::Refused, _) => "REFUSED".into(),
        (Outcome::Applied, Some(_)) => "undo".into(),
        (Outcome::Applied, None) => "applied".into(),
    }
}

fn change(entry: &Entry, look: &Look) -> String {
    let record = &entry.record;
    let mut text = match &record.old {
        Some(old) => format!("{old} {} {}", look.palette.glyphs.arrow, record.new),
        None => record.new.clone(),
    };
    for more in [&record.reason, &record.refusal].into_iter().flatten() {
        text += &format!("   {more}");
    }
    text
}
