//! The list of edits, newest first.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::dialog::{Verdict, foresee};
use crate::overlay::AuditList;
use crate::palette::Role;
use crate::state::State;
use crate::view::{Look, layout, pen::Pen, wrapped};
use gpushare_base::text::edits::{A_WHILE, from_to, in_words};
use gpushare_base::text::units::short_time;
use gpushare_control::audit::{Entry, Outcome, Place};

/// A column of the list. The whole entry shows its value too, so a narrow screen may leave it out.
struct Column {
    title: &'static str,
    width: u16,
    /// The minimum width of the screen that shows the column.
    from: u16,
    text: fn(&Entry, &Look) -> String,
}

const COLUMNS: [Column; 8] = [
    column("#", 4, 0, |entry, _| format!("{:>3}", entry.number)),
    column("TIME", 9, 40, |entry, look| time(entry, look, "%H:%M:%S")),
    column("WHO", 13, 60, |entry, _| entry.record.who.clone()),
    column("WHERE", 6, 100, |entry, _| {
        entry.record.r#where.word().to_owned()
    }),
    column("TARGET", 23, 50, |entry, _| entry.record.target.clone()),
    column("RESULT", 8, 100, |entry, _| result(entry)),
    column("GEN", 6, 100, |entry, _| {
        let generation = entry.record.generation;
        generation.map(|g| g.to_string()).unwrap_or_default()
    }),
    column("CHANGE", u16::MAX, 0, change),
];

const fn column(
    title: &'static str,
    width: u16,
    from: u16,
    text: fn(&Entry, &Look) -> String,
) -> Column {
    Column {
        title,
        width,
        from,
        text,
    }
}

/// Returns the columns for this width, each with its position.
fn shown(width: u16) -> impl Iterator<Item = (u16, &'static Column)> {
    let mut x = 1_u16;
    COLUMNS
        .iter()
        .filter(move |column| width >= column.from)
        .map(move |column| {
            let at = x;
            x = x.saturating_add(column.width);
            (at, column)
        })
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look, list: &AuditList) {
    let entries = list.entries.as_deref().unwrap_or_default();
    if let Some(entry) = list.entry().filter(|_| list.whole && !list.asking) {
        return whole(buffer, area, state, look, list, entry);
    }
    let question = list.asking.then(|| list.entry()).flatten();
    let question = question.map_or_else(Vec::new, |entry| {
        question_about(entry, state, look, area.width.min(118).saturating_sub(4))
    });
    let height = u16::try_from(entries.len() + question.len() + 6)
        .unwrap_or(u16::MAX)
        .clamp(10, 30);
    let width = area.width.min(118);
    let mut pen = Pen::new(buffer, layout::centred(area, width, height), &look.palette);
    let mut inside = pen.dialog(&format!("Edits  {}", list.path));
    for (x, column) in shown(inside.width()) {
        inside.put(x, 0, column.title, inside.style(Role::Dim));
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
        (None, true, _) => {
            "Enter all of it   read-only: nothing can be undone here   Esc close".into()
        }
        (None, false, 0) => {
            "Enter all of it   u undo the selected edit (asks first)   Down Up   Esc close".into()
        }
        (None, false, damaged) => {
            format!("{damaged} lines of the log cannot be read   u undo   Esc close")
        }
    };
    let bottom = inside.height().saturating_sub(1);
    inside.hint(1, bottom, &help, inside.style(Role::Key));
}

/// Returns the question before an edit is undone, with its consequences.
fn question_about(entry: &Entry, state: &State, look: &Look, room: u16) -> Vec<(String, Role)> {
    let record = &entry.record;
    let mut lines = vec![(
        format!(
            "Undo edit {} of {} at {}?",
            entry.number,
            record.who,
            time(entry, look, "%H:%M:%S"),
        ),
        Role::Title,
    )];
    let change = match &record.old {
        Some(old) => in_words(Some(&record.new), old, "back to"),
        None => record.new.clone(),
    };
    let change = wrapped(&format!("{}: {change}", record.target), room).into_iter();
    lines.extend(change.map(|line| (line, Role::Text)));
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
    for (x, column) in shown(pen.width()) {
        let role = if refused && matches!(column.title, "RESULT" | "CHANGE") {
            Role::Bad
        } else {
            Role::Text
        };
        let room = column.width.saturating_sub(1);
        let mut text = (column.text)(entry, look);
        if column.title == "CHANGE" && pen.width() < RESULT_FROM && result(entry) != "applied" {
            text = format!("{} {text}", result(entry));
        }
        pen.put_within(x, y, &text, room, pen.style(role));
    }
}

/// The minimum width of the screen at which the result has a column of its own.
const RESULT_FROM: u16 = 100;

/// Draws everything that the log records about one edit.
fn whole(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    look: &Look,
    list: &AuditList,
    entry: &Entry,
) {
    let record = &entry.record;
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let now_ns = state.data().sample.time_ns;
    let ends = match record.ends_ns() {
        Some(until) if until > now_ns => format!("in {}", short_time(until - now_ns)),
        Some(_) => "it has ended by itself".into(),
        None => "stays until it is changed".into(),
    };
    let mut lines = vec![
        ("When", time(entry, look, "%F %T")),
        ("Who", format!("{} (uid {})", record.who, record.uid)),
        (
            "With",
            match record.r#where {
                Place::Ctl => "gpushare".to_owned(),
                Place::Tui => "gpushare-top".to_owned(),
            },
        ),
        ("Target", record.target.clone()),
        ("Before", text(&record.old)),
        ("After", record.new.clone()),
        ("Ends", ends),
        ("Reason", text(&record.reason)),
        ("Result", result(entry)),
    ];
    if let Some(generation) = record.generation {
        lines.push(("Generation", generation.to_string()));
    }
    if let Some(undone) = record.undoes {
        lines.push(("Undoes", format!("generation {undone}")));
    }
    if let Some(refusal) = &record.refusal {
        lines.push(("Refused", refusal.clone()));
    }
    let room = area.width.min(100).saturating_sub(LABEL + 3);
    let lines: Vec<(&str, String)> = lines
        .into_iter()
        .flat_map(|(label, text)| {
            let parts = wrapped(&text, room).into_iter().enumerate();
            parts.map(move |(at, part)| (if at == 0 { label } else { "" }, part))
        })
        .collect();
    let height = u16::try_from(lines.len() + 4).unwrap_or(u16::MAX);
    let area = layout::centred(area, area.width.min(100), height);
    let mut pen = Pen::new(buffer, area, &look.palette);
    let mut inside = pen.dialog(&format!("Edit {}", entry.number));
    let bottom = inside.height().saturating_sub(1);
    for ((label, text), y) in lines.iter().zip(0..bottom) {
        inside.put(1, y, label, inside.style(Role::Dim));
        inside.put_within(LABEL, y, text, u16::MAX, inside.style(Role::Text));
    }
    let keys = match &list.message {
        Some(message) => message.as_str(),
        None => "u undo (asks first)   Down Up other edits   Enter Esc back",
    };
    inside.hint(1, bottom, keys, inside.style(Role::Key));
}

/// The column where the values of an edit begin.
const LABEL: u16 = 13;

fn time(entry: &Entry, look: &Look, format: &str) -> String {
    let at: Option<Timestamp> = entry.record.time.parse().ok();
    at.map(|at| at.to_zoned(look.zone.clone()).strftime(format).to_string())
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
    let arrow = look.palette.glyphs.arrow;
    let mut text = from_to(record.old.as_deref(), &record.new, arrow);
    if record.new.contains(A_WHILE) {
        text += A_WHILE;
    }
    for more in [&record.reason, &record.refusal].into_iter().flatten() {
        text += &format!("   {more}");
    }
    text
}
