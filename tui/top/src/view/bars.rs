//! Bars: one value, or a device's memory stacked by process.

use std::ops::Range;

use ratatui::style::Style;

use super::pen::Pen;
use crate::palette::Role;
use crate::state::State;
use gpushare_observe::data::lanes::Cell;
use gpushare_sample::{DeviceSample, Who};

const MIB: u64 = 1 << 20;

/// Draws a bar of `width` columns filled to `share` (0 to 1), in eighths of a cell.
pub(super) fn plain(pen: &mut Pen<'_>, x: u16, y: u16, width: u16, share: f64, style: Style) {
    let glyphs = pen.glyphs();
    let eighths = (share.clamp(0.0, 1.0) * f64::from(width) * 8.0).round() as usize;
    let empty = pen.style(Role::Dim);
    for column in 0..width {
        match eighths.saturating_sub(usize::from(column) * 8) {
            0 => pen.glyph(x + column, y, glyphs.empty, empty),
            part => pen.glyph(x + column, y, glyphs.growing[part.min(8) - 1], style),
        };
    }
}

/// Draws the time of a process as a bar in three parts: it holds the device, it waits for it, it leaves it alone.
pub(super) fn split(pen: &mut Pen<'_>, x: u16, y: u16, width: u16, spent: Cell, hold: Style) {
    let glyphs = pen.glyphs();
    let column = |share: f32| (share.clamp(0.0, 1.0) * f32::from(width)).round() as u16;
    let (held, used) = (column(spent.hold), column(spent.hold + spent.wait));
    let (wait, empty) = (pen.style(Role::Warn), pen.style(Role::Dim));
    pen.fill(x, y, held, glyphs.full, hold);
    pen.fill(x + held, y, used - held, glyphs.wait, wait);
    pen.fill(x + used, y, width - used, glyphs.empty, empty);
}

/// The part of one process in a memory bar.
pub(super) struct Part {
    who: Who,
    /// The first column, and the one behind the last.
    from: u16,
    to: u16,
    /// The column where the process's quota would end.
    tick: Option<u16>,
}

/// Returns the memory that all processes of a device may hold together: all of it, or less by the operator's limit.
pub(super) fn room(device: &DeviceSample) -> u64 {
    let limit = device.limit.unwrap_or(u64::MAX);
    device.total_bytes.min(limit)
}

/// Divides `width` columns among the processes of a device.
pub(super) fn parts(state: &State, gpu: usize, width: u16) -> Vec<Part> {
    let data = state.data();
    let total = data.sample.devices.get(gpu).map_or(0, room).max(1);
    let column = |bytes: u64| {
        let at = u128::from(bytes) * u128::from(width) / u128::from(total);
        u16::try_from(at).unwrap_or(width).min(width)
    };
    let mut sum = 0_u64;
    let mut parts = Vec::new();
    for (process, holding) in data.there(gpu) {
        let who = Who::of(process);
        let before = parts.last().map_or(0, |part: &Part| part.to);
        let from = column(sum).max(before);
        let tick = holding
            .quota
            .bytes
            .map(|quota| column(sum.saturating_add(quota)));
        sum = sum.saturating_add(holding.used);
        // A process that holds any memory is visible, if only as a letter.
        let least = if holding.used > 0 { from + 1 } else { from };
        let to = column(sum).max(least).min(width);
        parts.push(Part {
            who,
            from,
            to,
            tick,
        });
    }
    parts
}

/// Draws the memory of a device, each process in its colour under its letter.
pub(super) fn memory(pen: &mut Pen<'_>, x: u16, y: u16, width: u16, state: &State, gpu: usize) {
    let data = state.data();
    let glyphs = pen.glyphs();
    let fill = |pen: &mut Pen<'_>, columns: Range<u16>, glyph, style| {
        let count = columns.end.saturating_sub(columns.start);
        pen.fill(x + columns.start, y, count, glyph, style);
    };
    let empty = pen.style(Role::Dim);
    let parts = parts(state, gpu, width);
    let mut end = 0;
    for part in parts.iter().filter(|part| part.from < part.to) {
        let style = pen.palette.process(data.hue(part.who));
        fill(pen, end..part.from, glyphs.empty, empty);
        fill(pen, part.from + 1..part.to, glyphs.full, style);
        pen.put(x + part.from, y, &data.letter(part.who).to_string(), style);
        end = part.to;
    }
    fill(pen, end..width, glyphs.empty, empty);
}

/// Returns the positions of the quota marks, two columns each, from the left.
fn marks(state: &State, gpu: usize, width: u16) -> Vec<(u16, Who)> {
    let mut ticks: Vec<(u16, Who)> = parts(state, gpu, width)
        .into_iter()
        .filter_map(|part| Some((part.tick?, part.who)))
        .collect();
    ticks.sort_unstable();
    let mut free = 0;
    let mut marks = Vec::new();
    for (column, who) in ticks {
        let at = column.saturating_sub(2).max(free);
        if at + 2 > width {
            break;
        }
        marks.push((at, who));
        free = at + 3;
    }
    marks
}

/// Returns the process whose mark is in this column.
pub(super) fn tick(state: &State, gpu: usize, width: u16, column: u16) -> Option<Who> {
    let marks = marks(state, gpu, width);
    let here = |(at, _): &&(u16, Who)| (*at..*at + 2).contains(&column);
    marks.iter().find(here).map(|(_, who)| *who)
}

/// Returns the quota of a process whose mark is in this column, at the resolution of a column.
pub(super) fn quota_at(
    state: &State,
    gpu: usize,
    width: u16,
    who: Who,
    column: u16,
) -> Option<u64> {
    let data = state.data();
    let total = room(data.sample.devices.get(gpu)?);
    let mut before = 0_u64;
    for (process, holding) in data.there(gpu) {
        if Who::of(process) == who {
            // The mark ends where the quota ends.
            let end = u128::from(total) * u128::from(column + 1) / u128::from(width.max(1));
            let end = u64::try_from(end).unwrap_or(u64::MAX).min(total);
            let quota = end.saturating_sub(before);
            return Some((quota & !(MIB - 1)).max(MIB));
        }
        before = before.saturating_add(holding.used);
    }
    None
}

/// Draws the end of each process's quota below the bar.
pub(super) fn ticks(pen: &mut Pen<'_>, x: u16, y: u16, width: u16, state: &State, gpu: usize) {
    let data = state.data();
    for (at, who) in marks(state, gpu, width) {
        let text = format!("{}{}", data.letter(who).to_lowercase(), pen.glyphs().tick);
        pen.put(x + at, y, &text, pen.palette.process(data.hue(who)));
    }
}
