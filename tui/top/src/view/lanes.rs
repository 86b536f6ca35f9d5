//! The pane of lock lanes: for each process of the shown device, when it held the lock and when it waited, on one time
//! axis with the queue's depth and the device's utilisation.

mod choice;

use std::ops::Range;

use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr as _;

use super::Look;
use super::events::clock;
use super::pen::Pen;
use crate::palette::Role;
use crate::state::{Hit, State};
use gpushare_base::text::units::short_time;
use gpushare_observe::data::lanes::{Cell, Columns, Known};
use gpushare_sample::Who;
use gpushare_sample::{Holding, LockState, ProcessSample, ProcessState};

/// The position of the lanes in the pane, and the time that they show.
struct Axis {
    left: u16,
    width: u16,
    time: Columns,
    wide: bool,
}

impl Axis {
    fn of(columns: u16, state: &State) -> Self {
        let wide = columns >= 96;
        let left = match columns {
            0..40 => 2,
            40..96 => 14,
            _ => 24,
        };
        let right = match columns {
            0..40 => 0,
            40..96 => 17,
            _ => 24,
        };
        let width = columns.saturating_sub(left + right);
        let data = state.around();
        let column_ns = state.choices.column_ns(data);
        // Columns begin at multiples of their width, so that they move without flicker. They move two columns at a
        // time, because every move draws every lane anew. The newest columns fill up as time goes on.
        let step = 2 * column_ns;
        let end = state.past().map_or(data.sample.time_ns, |past| past.end_ns);
        let mut end = end.div_ceil(step).saturating_mul(step);
        if let Some(cursor) = state.cursor() {
            // A cursor left of the lanes moves them by halves of their width.
            let page = u64::from(width / 2).max(1);
            let columns = end.saturating_sub(cursor.start) / column_ns;
            let pages = columns.saturating_sub(width.into()).div_ceil(page);
            end = end.saturating_sub(pages * page * column_ns);
        }
        Self {
            left,
            width,
            time: Columns {
                from_ns: end.saturating_sub(u64::from(width) * column_ns),
                column_ns,
            },
            wide,
        }
    }

    fn end_ns(&self) -> u64 {
        self.time.from_ns + self.span_ns()
    }

    /// Returns the column of the cursor.
    fn cursor(&self, state: &State) -> Option<u16> {
        let since_ns = state.cursor()?.start.checked_sub(self.time.from_ns)?;
        let column = u16::try_from(since_ns / self.time.column_ns).ok()?;
        (column < self.width).then_some(column)
    }

    fn span_ns(&self) -> u64 {
        u64::from(self.width) * self.time.column_ns
    }
}

pub(super) fn draw(pen: &mut Pen<'_>, state: &State, look: &Look) {
    let area = pen.inside();
    if area.height == 0 {
        return;
    }
    let axis = Axis::of(area.width, state);
    let all = state.data().on(state.choices.gpu);
    let shown = Shown::of(area.height, state, &all);
    let lines = shown.lanes.len();
    let some = match all.len() > lines {
        true => format!("  {lines} of {}{}", all.len(), state.choices.lanes.words()),
        false => String::new(),
    };
    let title = format!(
        "Lock lanes GPU{}{some}  {}{}  {}/column",
        state.choices.gpu,
        if state.is_past() { "" } else { "last " },
        short_time(axis.span_ns()),
        short_time(axis.time.column_ns)
    );
    let glyphs = pen.glyphs();
    let waited = |who: &Who| {
        let holding = state.data().process(*who)?.on(state.choices.gpu)?;
        Some(holding.memory_wait.is_some() || holding.counters.memory_waits > 0)
    };
    let memory = match all.iter().any(|who| waited(who) == Some(true)) {
        true => format!("{} memory ", glyphs.memory),
        false => String::new(),
    };
    let tinted = match pen.palette.waiting(Style::new()) {
        Some(_) => "tint: wait",
        None => "wait",
    };
    let legend = format!(
        "{} hold {} part {} {tinted} {memory}{} denied {} holder",
        glyphs.full, glyphs.rising[3], glyphs.wait, glyphs.denied, glyphs.holder
    );
    let brief = format!(
        "{} hold {} wait {} denied",
        glyphs.full, glyphs.wait, glyphs.denied
    );
    // The heading has four blanks, and a piece of its line on both sides.
    let has_room = title.width() + legend.width() + 8 <= usize::from(pen.width());
    let mut inside = pen.pane(&title, if has_room { &legend } else { &brief });
    if shown.top > 0 {
        ruler(&mut inside, state, &axis, look);
    }
    let rows = (shown.top..).step_by(shown.rows.into());
    for (who, y) in shown.lanes.iter().zip(rows) {
        lane(&mut inside, y, shown.rows, state, &axis, *who);
    }
    if shown.sums {
        let bottom = inside.height();
        queue(&mut inside, bottom - 2, state, &axis);
        utilisation(&mut inside, bottom - 1, state, &axis);
    }
    if let Some(column) = axis.cursor(state) {
        inside.mark_column(axis.left + column);
        if shown.top > 0 {
            let (down, style) = (inside.glyphs().down, inside.style(Role::Selected));
            inside.glyph(axis.left + column, 0, down, style);
        }
    }
}

/// Maximum number of rows of a lane.
pub(super) const TALLEST: u16 = 8;

/// The parts that fit in the pane.
struct Shown {
    /// Number of lines above the lanes: the axis, or none.
    top: u16,
    lanes: Vec<Who>,
    /// Number of rows of each lane.
    rows: u16,
    /// Set if the queue and the utilisation fit below the lanes.
    sums: bool,
}

impl Shown {
    /// Chooses the parts. On a small screen, queue and utilisation are dropped when the processes need the lines, then the axis.
    fn of(height: u16, state: &State, all: &[Who]) -> Self {
        let wanted = u16::try_from(all.len()).unwrap_or(u16::MAX).max(1);
        let sums = height >= 9 || height >= wanted.saturating_add(3);
        let axis = sums || height > wanted || height >= 4 && height < wanted;
        let top = u16::from(axis);
        let lines = height.saturating_sub(top + if sums { 2 } else { 0 });
        Self {
            top,
            lanes: choice::chosen(state, all, lines.into()),
            rows: (lines / wanted).clamp(1, TALLEST),
            sums,
        }
    }
}

/// Reports whether a column of the screen shows a moment. `area` is the inside of the pane.
pub(super) fn shows_time(area: Rect, state: &State, x: u16) -> bool {
    let axis = Axis::of(area.width, state);
    let from = area.x + axis.left;
    (from..from + axis.width).contains(&x)
}

/// Returns the moment that a column of the screen shows.
pub(super) fn moment_at(area: Rect, state: &State, x: u16) -> u64 {
    let axis = Axis::of(area.width, state);
    let column = x.saturating_sub(area.x + axis.left);
    let column = column.min(axis.width.saturating_sub(1));
    axis.time.span(column.into()).start
}

/// Returns the time that the lanes show.
pub(super) fn window(area: Rect, state: &State) -> Range<u64> {
    let axis = Axis::of(area.width, state);
    let end_ns = state.past().map_or(u64::MAX, |past| past.end_ns);
    axis.time.from_ns..axis.end_ns().min(end_ns)
}

/// Returns the process of the lane in line `y` of the screen. `area` is the inside of the pane.
pub(super) fn hit(area: Rect, state: &State, y: u16) -> Option<Hit> {
    let all = state.data().on(state.choices.gpu);
    let shown = Shown::of(area.height, state, &all);
    let at = usize::from(y.checked_sub(area.y + shown.top)?);
    let who = shown.lanes.get(at / usize::from(shown.rows))?;
    Some(Hit::Process(*who, state.choices.gpu))
}

fn ruler(pen: &mut Pen<'_>, state: &State, axis: &Axis, look: &Look) {
    let dim = pen.style(Role::Dim);
    pen.fill(axis.left, 0, axis.width, pen.glyphs().line, dim);
    // The time of the day: "10 s ago" would be wrong a second later.
    let clock = |column: u16| clock(state, axis.time.span(column.into()).start, look);
    let cursor = axis.cursor(state);
    // Where less than some seconds are shown, the clock has milliseconds.
    let long = match axis.span_ns() {
        0..6_000_000_000 if axis.width >= 48 => 12,
        _ => 8,
    };
    for third in 0..3_u16 {
        let column = axis.width * third / 3;
        let ago = u64::from(axis.width - column) * axis.time.column_ns;
        let text = match state.is_past() {
            true if cursor.is_some_and(|at| (column..column + 1 + long).contains(&at)) => continue,
            true => clock(column)[..long.into()].to_owned(),
            false => format!("-{}", seconds(ago)),
        };
        pen.put(axis.left + column, 0, &text, dim);
    }
    if !state.is_past() {
        pen.put_before(axis.left + axis.width, 0, "now", dim);
    }
    if axis.wide {
        pen.put(axis.left + axis.width, 0, "  hold  wait  now", dim);
    } else if pen.width() >= 40 {
        pen.put(axis.left + axis.width, 0, " wait now", dim);
    }
}

/// Writes a short time for the time line.
fn seconds(ns: u64) -> String {
    let tenths = (ns + 50_000_000) / 100_000_000;
    match tenths {
        0..10 => format!("{}ms", ns / 1_000_000),
        10..100 => format!("{}.{}s", tenths / 10, tenths % 10),
        _ => format!("{}s", (tenths + 5) / 10),
    }
}

fn lane(pen: &mut Pen<'_>, y: u16, rows: u16, state: &State, axis: &Axis, who: Who) {
    let data = state.data();
    let gpu = state.choices.gpu;
    let Some(process) = data.process(who) else {
        return;
    };
    let Some(holding) = process.on(gpu) else {
        return;
    };
    let colour = pen.palette.process(data.hue(who));
    let (mark, style) = match holding.lock.state {
        LockState::Hold if state.has_details() => (pen.glyphs().holder, pen.palette.strong(colour)),
        _ => (" ", colour),
    };
    let mut x = pen.put(0, y, mark, style);
    x = pen.put(x, y, &data.letter(who).to_string(), style);
    if axis.left > 2 {
        let role = if state.choices.selected == Some(who) {
            Role::Selected
        } else {
            Role::Text
        };
        let style = pen.style(role);
        x = match axis.wide {
            true => pen.put(x, y, &format!(" {:<7}", process.shown_pid()), style),
            false => pen.put(x, y, " ", style),
        };
        pen.name(x, y, process.name(), axis.left - x - 1, style);
    }
    match state.around().lanes.get(who, gpu) {
        Some(lane) if rows > 1 => draw_tall_cells(pen, y, rows, axis, lane, colour),
        Some(lane) => draw_cells(pen, y, axis, lane, colour),
        None => {}
    }
    if pen.width() < 40 || !state.has_details() {
        return;
    }
    let spent = data.spent(who, gpu);
    let mut x = axis.left + axis.width;
    if axis.wide {
        x = pen.put(
            x,
            y,
            &format!(" {:>4.0}%", spent.hold * 100.0),
            pen.style(Role::Text),
        );
    }
    x = pen.put(
        x,
        y,
        &format!(" {:>3.0}%", spent.wait * 100.0),
        pen.style(Role::Text),
    );
    let (word, role) = state_of(process, holding, data.sample.time_ns);
    pen.put(x + 1, y, &word, pen.style(role));
}

/// From this share on a hold fills its cell.
const FULL: f32 = 0.94;
/// A shorter wait is not shown.
const SEEN: f32 = 0.06;

/// Draws the holds, waits and denials of one lane. The height of a block is the hold, the tint behind it the wait.
fn draw_cells(pen: &mut Pen<'_>, y: u16, axis: &Axis, lane: Known<'_>, colour: Style) {
    let bad = pen.style(Role::Bad);
    for (column, cell, marked) in cells(axis, lane) {
        let glyph = match marked {
            true => Some((pen.glyphs().denied, bad)),
            false => glyph(pen, column, cell, colour),
        };
        if let Some((glyph, style)) = glyph {
            pen.glyph(axis.left + column, y, glyph, style);
        }
    }
}

/// Returns the block of a hold, in front of the tint of a wait.
pub(super) fn glyph(
    pen: &Pen<'_>,
    column: u16,
    cell: Cell,
    colour: Style,
) -> Option<(&'static str, Style)> {
    let waiting = pen.palette.waiting(colour);
    let waits = cell.wait >= SEEN || cell.memory >= SEEN;
    let style = waiting.filter(|_| waits).unwrap_or(colour);
    // Without a background a cell shows one fact: holds and waits take turns.
    let hidden = waiting.is_none() && waits && cell.hold < FULL && column % 2 == 1;
    Some(match cell {
        cell if cell.hold >= FULL => (pen.glyphs().full, style),
        cell if cell.hold > 0.0 && !hidden => (part(pen, cell), style),
        cell if cell.memory >= SEEN => (pen.glyphs().memory, style),
        cell if cell.wait >= SEEN => (pen.glyphs().wait, style),
        _ => return None,
    })
}

/// Returns the columns of a lane, each with its cell and whether it is marked as a denial. In a run of denials every third
/// column is marked; between them the holds are shown.
fn cells<'l>(axis: &Axis, lane: Known<'l>) -> impl Iterator<Item = (u16, Cell, bool)> + 'l {
    let mut unmarked = 2;
    let cells = lane.cells(axis.time, axis.width.into());
    (0..axis.width).zip(cells).map(move |(column, cell)| {
        let marked = cell.denied && unmarked >= 2;
        unmarked = if marked { 0 } else { unmarked + 1 };
        (column, cell, marked)
    })
}

/// Draws a lane of several rows: in each column a block as high as the hold, and the wait stacked on it.
fn draw_tall_cells(
    pen: &mut Pen<'_>,
    y: u16,
    rows: u16,
    axis: &Axis,
    lane: Known<'_>,
    colour: Style,
) {
    let bad = pen.style(Role::Bad);
    let glyphs = pen.glyphs();
    let waiting = pen.palette.waiting(colour);
    let whole = f32::from(rows * 8);
    for (column, cell, marked) in cells(axis, lane) {
        let least = if cell.hold > 0.0 { 1.0 } else { 0.0 };
        let hold = (cell.hold * whole).round().clamp(least, whole) as u16;
        let wait = (cell.wait.max(cell.memory) * whole).round() as u16;
        let sign = match cell.memory >= SEEN {
            true => glyphs.memory,
            false => glyphs.wait,
        };
        for row in 0..rows {
            let below = row * 8;
            let part = |top: u16| usize::from(top.saturating_sub(below).min(8));
            // A row shows the wait if the larger part of what is above the hold there is wait.
            let waits = 2 * (part(hold + wait) - part(hold)) > 8 - part(hold);
            let style = waiting.filter(|_| waits).unwrap_or(colour);
            let glyph = match part(hold) {
                0 if waits => sign,
                0 => continue,
                part => glyphs.rising[part - 1],
            };
            pen.glyph(axis.left + column, y + rows - 1 - row, glyph, style);
        }
        if marked {
            pen.glyph(axis.left + column, y, glyphs.denied, bad);
        }
    }
}

/// Describes what the process does now, with the time since it began.
fn state_of(process: &ProcessSample, holding: &Holding, now_ns: u64) -> (String, Role) {
    let since = now_ns.saturating_sub(holding.lock.since_ns);
    match (holding.lock.state, process.state) {
        (_, ProcessState::Unmanaged) if process.elsewhere.is_some() => {
            ("astray".to_owned(), Role::Warn)
        }
        (_, ProcessState::Unmanaged) => ("no shim".to_owned(), Role::Dim),
        (_, ProcessState::Server) => ("server".to_owned(), Role::Dim),
        (_, ProcessState::Lost) => ("LOST".to_owned(), Role::Bad),
        (_, ProcessState::Stuck) => ("STUCK".to_owned(), Role::Bad),
        (_, state) if state.is_away() => (away(process, now_ns), Role::Title),
        (LockState::Hold, ProcessState::Stopped) => ("STOPPED".to_owned(), Role::Bad),
        (_, ProcessState::Stopped) => ("stopped".to_owned(), Role::Warn),
        (_, ProcessState::Memwait) if let Some(wait) = holding.memory_wait => (
            format!(
                "mem  {:>6}",
                short_time(now_ns.saturating_sub(wait.since_ns))
            ),
            Role::Warn,
        ),
        (LockState::Hold, _) => (format!("HOLD {:>6}", short_time(since)), Role::Title),
        (LockState::Wait, _) => (format!("wait {:>6}", short_time(since)), Role::Text),
        (LockState::Active, _) => (format!("runs {:>6}", short_time(since)), Role::Text),
        (LockState::Back, _) => (format!("back {:>6}", short_time(since)), Role::Text),
        (LockState::Paused, _) => ("paused".to_owned(), Role::Warn),
        (LockState::Idle, _) if holding.works(now_ns) => ("runs".to_owned(), Role::Text),
        (LockState::Idle, _) => ("idle".to_owned(), Role::Dim),
    }
}

/// Describes the place of a process's memory, with the progress of a move.
fn away(process: &ProcessSample, now_ns: u64) -> String {
    let word = process.state.word();
    match process.residence.progress(now_ns) {
        Some(percent) => format!("{word} {percent}%"),
        None => word.to_owned(),
    }
}

fn part(pen: &Pen<'_>, cell: Cell) -> &'static str {
    let eighths = (cell.hold * 8.0).round() as usize;
    pen.glyphs().rising[eighths.clamp(1, 8) - 1]
}

fn queue(pen: &mut Pen<'_>, y: u16, state: &State, axis: &Axis) {
    let data = state.data();
    let gpu = state.choices.gpu;
    label(pen, y, axis, "queue depth");
    // The average number of waiting processes in each column. The loop goes lane by lane, because that is their order
    // in memory.
    let mut depths = vec![0.0_f32; usize::from(axis.width)];
    for lane in data
        .there(gpu)
        .filter_map(|(p, _)| state.around().lanes.get(Who::of(p), gpu))
    {
        lane.add_waits(axis.time, &mut depths);
    }
    let most = depths.iter().copied().fold(0.0, f32::max);
    let scale = most.max(data.on(gpu).len() as f32 - 1.0).max(1.0);
    for (column, depth) in (0..axis.width).zip(depths) {
        rise(pen, axis.left + column, y, depth / scale, Role::Text);
    }
    let now = data.waiting(gpu);
    // An average above 2 means that three waited at some moment; a tenth is the bins' rounding.
    let most = (most - 0.1).max(0.0).ceil() as usize;
    let most = if state.is_past() { most } else { most.max(now) };
    if pen.width() >= 40 && state.has_details() {
        pen.put(
            axis.left + axis.width,
            y,
            &format!(" now {now} most {most}"),
            pen.style(Role::Dim),
        );
    }
}

fn utilisation(pen: &mut Pen<'_>, y: u16, state: &State, axis: &Axis) {
    let data = state.around();
    let gpu = state.choices.gpu;
    label(pen, y, axis, "GPU util");
    for column in 0..axis.width {
        let span = axis.time.span(column.into());
        if span.start > data.sample.time_ns {
            break;
        }
        if let Some(percent) = data.utilisation(gpu, span.start, span.end) {
            rise(
                pen,
                axis.left + column,
                y,
                f32::from(percent) / 100.0,
                Role::Text,
            );
        }
    }
    let devices = &state.data().sample.devices;
    let now = devices.get(gpu).and_then(|d| d.nvml.util_percent);
    let text = now.map_or(" NVML silent".into(), |percent| format!(" now {percent}%"));
    if pen.width() >= 40 && state.has_details() {
        pen.put(axis.left + axis.width, y, &text, pen.style(Role::Dim));
    }
}

fn label(pen: &mut Pen<'_>, y: u16, axis: &Axis, text: &str) {
    if axis.left > 2 {
        pen.put_within(1, y, text, axis.left - 2, pen.style(Role::Dim));
    }
}

fn rise(pen: &mut Pen<'_>, x: u16, y: u16, share: f32, role: Role) {
    let eighths = (share * 8.0).round() as usize;
    if eighths > 0 {
        let glyph = pen.glyphs().rising[eighths.min(8) - 1];
        pen.glyph(x, y, glyph, pen.style(role));
    }
}
