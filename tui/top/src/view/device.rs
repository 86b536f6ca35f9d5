//! The pane of devices: the shown one in full with a frame, or in two or three lines; the others in a line each, or in
//! a grid.

use std::borrow::Cow;

use ratatui::layout::Rect;

mod card;
mod lock;
mod time;

use super::pen::Pen;
use super::{bars, layout};
use crate::palette::Role;
use crate::state::{Hit, State};
use gpushare_base::text::units::short_size;
use gpushare_sample::{DeviceSample, LockState, Nvml, Who};

pub(super) use card::{TICKS, quota_at, tick};

/// The minimum width at which the lines of devices are aligned.
const WIDE: u16 = 100;

pub(super) fn draw(pen: &mut Pen<'_>, state: &State, how: layout::Devices) {
    let gpu = state.choices.gpu;
    let Some(device) = state.data().sample.devices.get(gpu) else {
        pen.put(1, 0, "no GPU seen yet", pen.style(Role::Dim));
        return;
    };
    let count = state.data().sample.devices.len();
    if how.card {
        let area = Rect {
            height: layout::DEVICE_FULL.min(pen.height()),
            ..pen.area
        };
        card::draw(&mut pen.part(area), state, device);
        list(pen, layout::DEVICE_FULL, state, count);
        return;
    }
    if pen.height() == 1 {
        // The holder matters more than the memory in use.
        lock::draw(pen, 0, state, gpu, device);
        return;
    }
    if how.list {
        list(pen, 0, state, count);
        let below = pen.height().saturating_sub(layout::BELOW_LIST);
        lock::draw(pen, below, state, gpu, device);
        time::draw(pen, below + 1, state, gpu);
        card::policy(pen, below + 2, state, device);
        return;
    }
    one_line(pen, 0, state, gpu);
    lock::draw(pen, 1, state, gpu, device);
    if how.time {
        time::draw(pen, 2, state, gpu);
    }
    let y = top(how);
    match count {
        0 | 1 => {}
        2 => one_line(pen, y, state, 1 - gpu.min(1)),
        _ => grid(pen, y, state, count),
    }
}

/// Returns the number of lines of the shown device, above those of the others.
fn top(how: layout::Devices) -> u16 {
    2 + u16::from(how.time)
}

/// Returns the device at a position of the pane.
pub(super) fn hit(area: Rect, how: layout::Devices, state: &State, x: u16, y: u16) -> Option<Hit> {
    let count = state.data().sample.devices.len();
    let list = |top: u16| {
        let lines = usize::from(area.height.saturating_sub(top));
        let first = (state.choices.gpu + 1).saturating_sub(lines);
        Some(first + usize::from(y.checked_sub(top)?))
    };
    let top = top(how);
    let gpu = match (how.card, how.list, count) {
        (true, ..) => list(layout::DEVICE_FULL)?,
        (_, true, _) => list(0)?,
        (.., 0 | 1) => 0,
        (.., 2) if y == top => 1 - state.choices.gpu.min(1),
        (.., 2) => state.choices.gpu,
        _ => {
            let each = layout::grid_line(area.width);
            let lines = usize::from(area.height.saturating_sub(top));
            let first = (state.choices.gpu / each + 1).saturating_sub(lines) * each;
            let row = usize::from(y.checked_sub(top)?);
            first + row * each + usize::from(x / layout::GRID).min(each - 1)
        }
    };
    (gpu < count).then_some(Hit::Gpu(gpu))
}

/// Draws a line for each device, including the shown one.
fn list(pen: &mut Pen<'_>, top: u16, state: &State, count: usize) {
    let lines = usize::from(pen.height().saturating_sub(top));
    if count < 2 {
        return;
    }
    let first = (state.choices.gpu + 1).saturating_sub(lines);
    for (gpu, y) in (first..count).zip(top..pen.height()) {
        one_line(pen, y, state, gpu);
    }
}

/// Draws every device in twenty columns: its number, its holder, the number of waiting processes, its utilisation and
/// its memory.
fn grid(pen: &mut Pen<'_>, top: u16, state: &State, count: usize) {
    let data = state.data();
    let each = layout::grid_line(pen.width());
    let lines = usize::from(pen.height().saturating_sub(top));
    let first = (state.choices.gpu / each + 1).saturating_sub(lines) * each;
    for (at, gpu) in (first..count).enumerate() {
        let Some(device) = data.sample.devices.get(gpu) else {
            break;
        };
        let (Ok(row), Ok(column)) = (u16::try_from(at / each), u16::try_from(at % each)) else {
            break;
        };
        let holder = device
            .owner
            .map_or('-', |slot| data.letter(Who::Slot(slot)));
        let queue = match data.waiting(gpu) {
            0 => String::new(),
            n => format!("+{n}"),
        };
        let util = device.nvml.util_percent;
        let util = util.map_or("  -".into(), |util| format!("{util:>3}%"));
        let used = data.used_bytes(gpu);
        let full = percent(used, bars::room(device));
        let text = format!("{gpu:>2} {holder}{queue:<3}{util:>5} m{full:>3}% ");
        let role = match (gpu == state.choices.gpu, queue.is_empty()) {
            (true, _) => Role::Selected,
            (false, false) => Role::Text,
            (false, true) => Role::Dim,
        };
        let style = pen.style(role);
        pen.put_within(
            column * layout::GRID,
            top + row,
            &text,
            layout::GRID - 1,
            style,
        );
    }
}

/// Draws a device's memory and its lock.
pub(super) fn two_lines(pen: &mut Pen<'_>, state: &State, gpu: usize) {
    if let Some(device) = state.data().sample.devices.get(gpu) {
        one_line(pen, 0, state, gpu);
        lock::draw(pen, 1, state, gpu, device);
    }
}

/// Draws a device in one line.
fn one_line(pen: &mut Pen<'_>, y: u16, state: &State, gpu: usize) {
    let data = state.data();
    let Some(device) = data.sample.devices.get(gpu) else {
        return;
    };
    let shown = gpu == state.choices.gpu;
    let role = if shown { Role::Title } else { Role::Dim };
    let used = data.used_bytes(gpu);
    // On a wide screen the values of all devices are aligned in columns.
    let wide = pen.width() >= WIDE;
    let (used, total) = (short_size(used), short_size(bars::room(device)));
    let mut right = match wide {
        true => format!(" {used:>6}/{total:<6}"),
        false => format!(" {used}/{total}"),
    };
    let nvml = matches!(data.sample.nvml, Nvml::Ready(_));
    match device.nvml.util_percent {
        Some(util) => right += &format!(" {util:>3}%"),
        None if wide && nvml => right += "    -",
        None => {}
    }
    if let Some(degrees) = device.nvml.temperature_c
        && pen.width() >= 70
    {
        let width = if wide { 3 } else { 0 };
        right += &format!(" {degrees:>width$}{}", pen.glyphs().degrees);
    } else if wide && nvml {
        right += "    -";
    }
    let holder = device.owner.map(|slot| data.letter(Who::Slot(slot)));
    let mut lock = match holder {
        Some(letter) => format!("now {letter}"),
        None if data.overlaps(gpu) => {
            format!("{} submit", data.in_state(gpu, LockState::Active).count())
        }
        None => match data.without_lock(gpu) {
            0 => "free".into(),
            active => format!("{active} active"),
        },
    };
    let waiting = data.waiting(gpu);
    if waiting > 0 {
        lock += &format!(" ({waiting} wait)");
    }
    right += &match wide {
        true => format!(" {lock:<14}"),
        false => format!(" {lock}"),
    };
    // On the narrowest screen the numbers are dropped first: the holder matters most.
    let name_width = match pen.width() {
        WIDE.. => {
            let names = data.sample.devices.iter().map(|d| name(d).chars().count());
            names.max().unwrap_or(0).min(24) as u16
        }
        50.. => 14,
        _ => 0,
    };
    let mut x = pen.put(0, y, &format!("GPU{gpu} "), pen.style(role));
    if name_width > 0 {
        let end = pen.put_within(x, y, &name(device), name_width, pen.style(role));
        x = if wide { x + name_width } else { end } + 1;
    }
    let bar = pen
        .width()
        .saturating_sub(x + u16::try_from(right.chars().count()).unwrap_or(u16::MAX));
    bars::memory(pen, x, y, bar, state, gpu);
    pen.put(x + bar, y, &right, pen.style(Role::Text));
}

/// Returns the device's name; for a MIG instance, the instance and its card.
fn name(device: &DeviceSample) -> Cow<'_, str> {
    let name = device.short_name();
    match (device.nvml.mig_parent, name.split_once("MIG ")) {
        (Some(parent), Some((_, instance))) => format!("{instance} card {parent}").into(),
        _ => name.into(),
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}
