//! The process table: the columns of [`columns::COLUMNS`] that fit.

use ratatui::layout::Rect;

use super::bars;
use super::pen::{self, Pen, WIDEST_NAME};
use crate::keys::Action;
use crate::palette::Role;
use crate::state::groups::{self, Line};
use crate::state::{Choices, Hit, State, Tree};
use gpushare_observe::findings::NEAR_QUOTA;
use gpushare_sample::ProcessState;
use gpushare_sample::columns::Row;
use gpushare_sample::columns::{self, COLUMNS, Column, Value};

mod tree;

/// The width of a column that is usually hidden; its values are names and paths.
const HIDDEN: u16 = 16;

/// The part of its quota from which what a process holds is a warning. Near the quota it is a fault.
const NEARLY_FULL: f64 = 0.85;

/// With fewer lines than this the pane has no frame.
const PANE: u16 = 3;

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    let rows = state.rows();
    let choices = &state.choices;
    let sort = COLUMNS.get(choices.sort).map_or("", |column| column.title);
    let glyphs = pen.glyphs();
    let arrow = if choices.descending {
        glyphs.down
    } else {
        glyphs.up
    };
    let all = all(state);
    let place = if choices.all_gpus {
        "all GPUs".to_owned()
    } else {
        format!("GPU{}", choices.gpu)
    };
    let then = choices.then.and_then(|(column, _)| COLUMNS.get(column));
    let then = then.map_or(String::new(), |column| format!(", then {}", column.title));
    let span = state.data().span(choices.gpu).words();
    let title = format!(
        "Processes {}/{all} ({place})  {span}  sort {sort}{arrow}{then}",
        rows.len()
    );
    let mut notes = Vec::new();
    if !choices.marked.is_empty() {
        notes.push(format!("{} marked", choices.marked.len()));
    }
    if !choices.filter.is_empty() {
        notes.push(format!("filter: {}", choices.filter));
    }
    let note = notes.join("   ");
    let mut inside;
    let mut pen = match pen.height() {
        0..PANE => Pen::reborrow(pen),
        _ => {
            inside = pen.pane(&title, &note);
            Pen::reborrow(&mut inside)
        }
    };
    let columns = columns_of(pen.width(), choices, &rows);
    heading(&mut pen, &columns, choices);
    let lines = usize::from(pen.height().saturating_sub(1));
    let all = groups::lines(&rows, choices);
    let first = first(&all, state, lines);
    for (one, y) in all[first..].iter().zip(1..pen.height()) {
        match one {
            Line::Group(rows, folded) => {
                let sign = if *folded { glyphs.folded } else { glyphs.open };
                let text = format!("{sign} {}", tree::sum(rows, choices.tree));
                pen.put(0, y, &text, pen.style(Role::Title));
            }
            Line::Row(row) => line(&mut pen, y, &columns, row, state),
        }
        if is_selected(one, state) {
            let style = pen.style(Role::Selected);
            pen.mark_line(y, style);
        }
    }
    if rows.is_empty() {
        let back = choices.keymap.key_of(Action::Back);
        let text = match choices.filter.is_empty() {
            true => "no process here".to_owned(),
            false => format!("no process passes the filter; {back} clears it"),
        };
        pen.put(2, 1, &text, pen.style(Role::Dim));
    }
}

/// Returns the number of rows without a filter.
fn all(state: &State) -> usize {
    let data = state.data();
    let of = |gpu: usize| data.there(gpu).count();
    match state.choices.all_gpus {
        true => data.sample.gpus().map(of).sum(),
        false => of(state.choices.gpu),
    }
}

/// Returns the number of lines of the rows.
pub(super) fn lines(state: &State) -> u16 {
    let choices = &state.choices;
    let lines = match choices.tree {
        Tree::Flat if choices.filter.is_empty() => all(state),
        _ => groups::lines(&state.rows(), choices).len(),
    };
    u16::try_from(lines).unwrap_or(u16::MAX)
}

/// Returns the first line to show, so that the selected row is on the screen.
fn first(all: &[Line<'_>], state: &State, lines: usize) -> usize {
    let selected = all.iter().position(|line| is_selected(line, state));
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(lines));
    first.min(all.len())
}

/// Reports whether a line is selected: a row, or a folded group with the selected row.
fn is_selected(line: &Line<'_>, state: &State) -> bool {
    let is_open = matches!(line, Line::Group(_, false));
    !is_open && line.rows().iter().any(|row| state.is_selected(row))
}

pub(super) fn columns_of(
    width: u16,
    choices: &Choices,
    rows: &[Row<'_>],
) -> Vec<(&'static Column, u16)> {
    let says = |column: &Column| {
        let silent = |row: &Row<'_>| matches!((column.value)(row), Value::None);
        !column.is_sparse() || !rows.iter().all(silent)
    };
    match &choices.columns {
        Some(chosen) => as_chosen(width, chosen),
        None => fitting(width, choices, says),
    }
}

/// Returns the columns that the user chose, as many as fit.
fn as_chosen(width: u16, chosen: &[usize]) -> Vec<(&'static Column, u16)> {
    let mut room = width.saturating_sub(2);
    let mut columns = Vec::new();
    for column in chosen.iter().filter_map(|at| COLUMNS.get(*at)) {
        let wanted = match (column.key, column.width) {
            ("name", _) => WIDEST_NAME.min(room),
            (_, 0) => HIDDEN,
            (_, width) => width,
        };
        if wanted > room {
            break;
        }
        room = room.saturating_sub(wanted + 1);
        columns.push((column, wanted));
    }
    columns
}

/// Returns the area of the table's lines in its part of the screen.
pub(super) fn inside(area: Rect, open: bool) -> Rect {
    match area.height {
        0..PANE => area,
        _ => pen::inside(area, open),
    }
}

/// Returns the item at a position of the screen: a row, or the heading of a column. `area` is the result of [`inside`].
pub(super) fn hit(area: Rect, state: &State, x: u16, y: u16) -> Option<Hit> {
    let (x, y) = (x.checked_sub(area.x)?, y.checked_sub(area.y)?);
    let rows = state.rows();
    if y == 0 {
        let mut from = 2;
        for (column, width) in columns_of(area.width, &state.choices, &rows) {
            if (from..=from + width).contains(&x) {
                return columns::position(column.key).map(Hit::Heading);
            }
            from += width + 1;
        }
        return None;
    }
    if y >= area.height {
        return None;
    }
    let all = groups::lines(&rows, &state.choices);
    let first = first(&all, state, usize::from(area.height.saturating_sub(1)));
    match all.get(first + usize::from(y) - 1)? {
        Line::Group(rows, _) => rows.first().map(|row| Hit::Group(row.who, row.holding.gpu)),
        Line::Row(row) => Some(Hit::Process(row.who, row.holding.gpu)),
    }
}

/// Returns the columns for this width, each with its width.
fn fitting(
    width: u16,
    choices: &Choices,
    says: impl Fn(&Column) -> bool,
) -> Vec<(&'static Column, u16)> {
    let all_gpus = choices.all_gpus;
    let added = |at: &usize| choices.added.contains(at);
    let mut columns: Vec<&Column> = (0..COLUMNS.len())
        .filter(|at| choices.shows_column(*at))
        .map(|at| (at, &COLUMNS[at]))
        .filter(|(at, column)| added(at) || (column.key != "gpu" || all_gpus) && says(column))
        .map(|(_, column)| column)
        .collect();
    let width_of = |column: &Column| match column.width {
        0 => HIDDEN,
        width => width,
    };
    // One column for the letter, and one blank behind each column.
    let wanted = |columns: &[&Column]| {
        1 + columns
            .iter()
            .map(|column| width_of(column) + 1)
            .sum::<u16>()
    };
    while wanted(&columns) > width && columns.len() > 1 {
        // In the list of all devices the device distinguishes the rows of a process.
        let rank = |column: &Column| match column.key == "gpu" || column.width == 0 {
            true => 0,
            false => column.rank,
        };
        let worst = columns
            .iter()
            .enumerate()
            .max_by_key(|(_, column)| rank(column));
        let Some((at, _)) = worst else { break };
        columns.remove(at);
    }
    let spare = width.saturating_sub(wanted(&columns));
    let widen = |column: &'static Column| match column.key {
        "name" => (column, (column.width + spare).min(WIDEST_NAME)),
        _ => (column, width_of(column)),
    };
    columns.into_iter().map(widen).collect()
}

/// Draws the headings. The first sort column is bold, and an arrow stands behind it and behind the second.
fn heading(pen: &mut Pen<'_>, columns: &[(&Column, u16)], choices: &Choices) {
    let (first, then) = choices.by();
    let glyphs = pen.glyphs();
    let arrow = |descending| if descending { glyphs.down } else { glyphs.up };
    let mut x = 2;
    for (column, width) in columns {
        let at = columns::position(column.key);
        let is = |key: &(usize, bool)| at == Some(key.0);
        let sorted = Some(first).filter(is).or(then.filter(is));
        let role = if is(&first) { Role::Title } else { Role::Dim };
        let title = match sorted {
            Some((_, descending)) if column.title.len() < usize::from(*width) => {
                format!("{}{}", column.title, arrow(descending))
            }
            _ => column.title.to_owned(),
        };
        match column.is_text() {
            true => pen.put_within(x, 0, &title, *width, pen.style(role)),
            false => {
                pen.put_before(x + width, 0, &title, pen.style(role));
                x
            }
        };
        x += width + 1;
    }
}

fn line(pen: &mut Pen<'_>, y: u16, columns: &[(&Column, u16)], row: &Row<'_>, state: &State) {
    let colour = pen.palette.process(state.data().hue(row.who));
    let x = pen.put(0, y, &row.letter.to_string(), colour);
    let sign = match (state.choices.marked.contains(&row.who), row.process.trace()) {
        (true, _) => "*",
        (false, Some(_)) => "t",
        (false, None) => "",
    };
    pen.put(x, y, sign, pen.style(Role::Warn));
    let mut x = 2;
    for (column, width) in columns {
        let value = (column.value)(row);
        let role = role(column.key, &value, row);
        match &value {
            Value::Share(share) => bars::plain(pen, x, y, *width, *share, pen.style(role)),
            // Unlike names, states differ at their beginning.
            value if column.key == "state" => {
                pen.put_within(x, y, &value.shown(), *width, pen.style(role));
            }
            value if column.is_text() => {
                pen.name(x, y, &value.shown(), *width, pen.style(role));
            }
            value => pen.put_before(x + width, y, &value.shown(), pen.style(role)),
        }
        x += width + 1;
    }
}

pub(super) fn role(key: &str, value: &Value<'_>, row: &Row<'_>) -> Role {
    match (key, value) {
        ("used" | "full", _) if row.fullness() >= Some(NEAR_QUOTA) => Role::Bad,
        ("used" | "full", _) if row.fullness() >= Some(NEARLY_FULL) => Role::Warn,
        ("denials", Value::Count(1..)) => Role::Bad,
        ("left", Value::Span(_)) => Role::Warn,
        ("state", _) => match row.process.state {
            ProcessState::Stuck
            | ProcessState::Gone
            | ProcessState::Lost
            | ProcessState::Forged => Role::Bad,
            ProcessState::Unmanaged
            | ProcessState::Paused
            | ProcessState::Memwait
            | ProcessState::Stopped => Role::Warn,
            ProcessState::Hold
            | ProcessState::Evicting
            | ProcessState::Evicted
            | ProcessState::Returning
            | ProcessState::Restoring => Role::Title,
            ProcessState::Wait
            | ProcessState::Back
            | ProcessState::Active
            | ProcessState::Idle
            | ProcessState::Server => Role::Text,
        },
        (_, Value::None) => Role::Dim,
        ("full", _) => Role::Good,
        _ => Role::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_sample::{DeviceSample, Holding, ProcessSample, Who};

    #[test]
    fn memory_near_its_quota_is_amber_and_almost_all_of_it_red() {
        let (process, device) = (ProcessSample::default(), DeviceSample::default());
        let role_at = |used: u64| {
            let mut holding = Holding::default();
            holding.view.used = used;
            holding.view.quota.bytes = Some(100);
            let row = Row {
                who: Who::of(&process),
                letter: 'A',
                process: &process,
                holding: &holding,
                device: &device,
                recent: None,
                now_ns: 0,
            };
            ["used", "full"].map(|key| role(key, &Value::Bytes(used), &row))
        };
        assert_eq!(role_at(84), [Role::Text, Role::Good]);
        assert_eq!(role_at(85), [Role::Warn; 2]);
        assert_eq!(role_at(96), [Role::Warn; 2]);
        assert_eq!(role_at(97), [Role::Bad; 2]);
    }
}
