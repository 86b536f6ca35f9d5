//! The screen of models: which processes have their memory on a device, which have it on the host, and how long a request to one
//! waits for it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr as _;

use super::pen::Pen;
use super::{Look, bars, events, footer, header, wrapped};
use crate::keys::Action;
use crate::palette::Role;
use crate::state::State;
use gpushare_base::text::units::{short_size, short_time};
use gpushare_sample::columns::{self, Column, Row, Value};
use shm_layout::Phase;

/// The columns by key, each with its width, and its rank: on a narrow screen the highest goes first.
const SHOWN: [(&str, u16, u8); 13] = [
    ("name", 13, 0),
    ("total", 6, 1),
    ("where", 11, 0),
    ("pin", 3, 4),
    ("unused", 6, 3),
    ("moves_hour", 7, 5),
    ("wake_p50", 7, 6),
    ("wake_p99", 7, 2),
    ("host", 6, 7),
    ("wake_max", 7, 10),
    ("moves", 5, 11),
    ("quota", 6, 12),
    ("user", 8, 13),
];
/// The maximum width of the name, which takes the remaining columns.
const WIDEST_NAME: u16 = 26;
/// The least width in which the reason why memory stays is shown.
const REASON: u16 = 24;
/// The lines of a pane with one line inside.
const BAR: u16 = 3;
/// The least height of the events.
const EVENTS: u16 = 4;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look) {
    let rows = state.models();
    let head = Head::of(state, &rows, area.width.saturating_sub(4));
    let [mut top, table, bar, below, bottom] = parts(area, head.height() + lines(&rows));
    let palette = &look.palette;
    top.height = top.height.min(1);
    header::draw(&mut Pen::new(buffer, top, palette), state, look, true);
    self::table(&mut Pen::new(buffer, table, palette), state, &rows, &head);
    card(&mut Pen::new(buffer, bar, palette), state);
    events::draw(&mut Pen::new(buffer, below, palette), state, look);
    footer::draw(&mut Pen::new(buffer, bottom, palette), state, look);
}

/// Returns the lines of the rows and their heading; one for the sentence that there are none.
fn lines(rows: &[Row<'_>]) -> u16 {
    match rows.len() {
        0 => 1,
        count => u16::try_from(count + 1).unwrap_or(u16::MAX),
    }
}

/// Divides the screen: the first line, the table with `wanted` lines inside, the bar of the memory, the events, the last line.
fn parts(area: Rect, wanted: u16) -> [Rect; 5] {
    let top = u16::from(area.height >= 4);
    let bottom = u16::from(area.height >= 3);
    let room = area.height - top - bottom;
    let bar = match room {
        14.. => BAR,
        8.. => 1,
        _ => 0,
    };
    let room = room - bar;
    let wanted = wanted.saturating_add(2);
    let events = match room.saturating_sub(wanted) {
        left if left >= EVENTS => left,
        _ => 0,
    };
    let mut y = area.y;
    [top, room - events, bar, events, bottom].map(|height| {
        let part = Rect { y, height, ..area };
        y += height;
        part
    })
}

/// The lines above the table.
struct Head(Vec<(String, Role)>);

impl Head {
    fn of(state: &State, rows: &[Row<'_>], width: u16) -> Self {
        let mut lines = Vec::new();
        if !rows.is_empty() {
            lines.push((summary(rows, width), Role::Title));
        }
        let data = state.data();
        let gpu = state.choices.gpu;
        let thrashing = data
            .alerts
            .iter()
            .find(|alert| alert.kind.id == "thrashing" && alert.gpu == Some(gpu));
        let long = match thrashing {
            Some(alert) => Some((alert.sentence(), Role::Warn)),
            None => hint(state, rows).map(|hint| (hint, Role::Dim)),
        };
        if let Some((text, role)) = long {
            lines.extend(wrapped(&text, width).into_iter().map(|line| (line, role)));
        }
        Self(lines)
    }

    fn height(&self) -> u16 {
        u16::try_from(self.0.len()).unwrap_or(u16::MAX)
    }
}

/// Tells how many processes are where, and the longest wait, as far as it fits.
fn summary(rows: &[Row<'_>], width: u16) -> String {
    let count = |phase| {
        let here = rows
            .iter()
            .filter(|row| row.process.residence.phase == phase);
        here.count()
    };
    let away = [
        (Phase::Evicting, "leaving"),
        (Phase::Evicted, "on the host"),
        (Phase::Returning, "waiting for room"),
        (Phase::Restoring, "coming"),
        (Phase::Lost, "lost"),
    ];
    let mut parts = vec![format!(
        "{} of {} on the card",
        count(Phase::Resident),
        rows.len()
    )];
    parts.extend(away.into_iter().filter_map(|(phase, word)| {
        let count = count(phase);
        (count > 0).then(|| format!("{count} {word}"))
    }));
    let longest = rows
        .iter()
        .filter_map(|row| Some((row.process.wakes()?[2], row)))
        .max_by_key(|(wake, _)| *wake);
    parts.extend(longest.map(|(wake, row)| {
        format!(
            "longest wait {} ({} {})",
            short_time(wake),
            row.letter,
            row.process.name()
        )
    }));
    let host = rows.iter().fold(0, |sum: u64, row| {
        sum.saturating_add(row.process.residence.host_bytes)
    });
    parts.extend((host > 0).then(|| format!("{} of host memory", short_size(host))));
    let mut text = String::new();
    for part in parts {
        let end = if text.is_empty() { 0 } else { text.width() + 3 };
        if end + part.width() > usize::from(width) {
            break;
        }
        if !text.is_empty() {
            text += "   ";
        }
        text += &part;
    }
    text
}

/// Says what makes memory leave, where nothing does.
fn hint(state: &State, rows: &[Row<'_>]) -> Option<String> {
    let gpu = state.choices.gpu;
    let device = state.data().sample.devices.get(gpu)?;
    let leaves = |row: &Row<'_>| {
        row.process.share.evict_after.is_some() || row.process.residence.phase != Phase::Resident
    };
    let is_still = !device.overcommit && !rows.is_empty() && !rows.iter().any(leaves);
    is_still.then(|| {
        format!(
            "No memory leaves by itself here. gpushare policy set {gpu} overcommit=on lets the memory of idle processes leave when \
             others need the room."
        )
    })
}

fn table(pen: &mut Pen<'_>, state: &State, rows: &[Row<'_>], head: &Head) {
    let gpu = state.choices.gpu;
    let device = state.data().sample.devices.get(gpu);
    let rule = match device.is_some_and(|device| device.overcommit) {
        true => "  overcommit on",
        false => "",
    };
    let mut inside;
    let mut pen = match pen.height() {
        0..4 => Pen::reborrow(pen),
        _ => {
            let key = |action| state.choices.keymap.key_of(action);
            let note = format!(
                "{} leave or come back   {} pin",
                key(Action::Evict),
                key(Action::Pin)
            );
            inside = pen.pane(&format!("Models  GPU{gpu}{rule}"), &note);
            Pen::reborrow(&mut inside)
        }
    };
    let room = pen.height().saturating_sub(1);
    let mut y = 0;
    for (line, role) in head.0.iter().take(room.saturating_sub(1).into()) {
        pen.put_within(1, y, line, u16::MAX, pen.style(*role));
        y += 1;
    }
    if rows.is_empty() {
        let text = format!("no process holds memory on GPU{gpu}");
        pen.put_within(1, y, &text, u16::MAX, pen.style(Role::Dim));
        return;
    }
    let columns = fitting(pen.width());
    heading(&mut pen, y, &columns);
    let lines = usize::from(room.saturating_sub(y));
    let selected = rows
        .iter()
        .position(|row| Some(row.who) == state.choices.selected);
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(lines));
    for (row, y) in rows[first..].iter().take(lines).zip(y + 1..) {
        line(&mut pen, y, &columns, row, state);
        if Some(row.who) == state.choices.selected {
            let style = pen.style(Role::Selected);
            pen.mark_line(y, style);
        }
    }
}

/// Returns the columns that fit, each with its width.
fn fitting(width: u16) -> Vec<(&'static Column, u16)> {
    let mut shown = SHOWN.to_vec();
    let wanted =
        |shown: &[(&str, u16, u8)]| 1 + shown.iter().map(|column| column.1 + 1).sum::<u16>();
    while wanted(&shown) > width && shown.len() > 1 {
        let worst = shown.iter().enumerate().max_by_key(|(_, column)| column.2);
        let Some((at, _)) = worst else { break };
        shown.remove(at);
    }
    let spare = width.saturating_sub(wanted(&shown));
    shown
        .into_iter()
        .filter_map(|(key, width, _)| {
            let column = columns::find(key)?;
            Some(match key {
                "name" => (column, (width + spare).min(WIDEST_NAME)),
                _ => (column, width),
            })
        })
        .collect()
}

fn heading(pen: &mut Pen<'_>, y: u16, columns: &[(&Column, u16)]) {
    let dim = pen.style(Role::Dim);
    let mut x = 2;
    for (column, width) in columns {
        match column.is_text() {
            true => {
                pen.put_within(x, y, column.title, *width, dim);
            }
            false => pen.put_before(x + width, y, column.title, dim),
        }
        x += width + 1;
    }
}

fn line(pen: &mut Pen<'_>, y: u16, columns: &[(&Column, u16)], row: &Row<'_>, state: &State) {
    let colour = pen.palette.process(state.data().hue(row.who));
    pen.put(0, y, &row.letter.to_string(), colour);
    let mut x = 2;
    for (column, width) in columns {
        let value = (column.value)(row);
        let style = pen.style(role(column.key, &value, row));
        match column.is_text() {
            true => {
                pen.put_within(x, y, &value.shown(), *width, style);
            }
            false => pen.put_before(x + width, y, &value.shown(), style),
        }
        x += width + 1;
    }
    let room = pen.width().saturating_sub(x + 1);
    if let Some(why) = row.process.residence.why.filter(|_| room >= REASON) {
        let text = format!("stays: {}", why.sentence());
        pen.put_within(x + 1, y, &text, room, pen.style(Role::Dim));
    }
}

fn role(key: &str, value: &Value<'_>, row: &Row<'_>) -> Role {
    match (key, row.process.residence.phase) {
        ("where", Phase::Lost) => Role::Bad,
        ("where", Phase::Returning) => Role::Warn,
        ("where", Phase::Evicting | Phase::Restoring) => Role::Title,
        ("where", Phase::Resident) => Role::Good,
        _ if *value == Value::None => Role::Dim,
        _ => Role::Text,
    }
}

/// Draws the memory of the device by process.
fn card(pen: &mut Pen<'_>, state: &State) {
    let gpu = state.choices.gpu;
    let data = state.data();
    let Some(device) = data.sample.devices.get(gpu) else {
        return;
    };
    let used = data.used_bytes(gpu);
    let of = format!("{} of {}", short_size(used), short_size(bars::room(device)));
    match pen.height() {
        0 => {}
        1..BAR => {
            let x = pen.put(1, 0, &format!("card {of} "), pen.style(Role::Dim));
            let width = pen.width().saturating_sub(x + 1);
            bars::memory(pen, x, 0, width, state, gpu);
        }
        _ => {
            let mut inside = pen.pane(&format!("Memory of GPU{gpu}  {of}"), "by process");
            let width = inside.width().saturating_sub(2);
            bars::memory(&mut inside, 1, 0, width, state, gpu);
        }
    }
}
