//! Who gets how many lines. What answers *who holds, who waits* goes last when the screen shrinks.

use ratatui::layout::Rect;

use crate::top::state::State;

/// The parts of the main screen, from the top; a part without room has no height.
pub(super) struct Parts {
    pub(super) header: Rect,
    pub(super) device: Rect,
    pub(super) lanes: Rect,
    pub(super) table: Rect,
    pub(super) history: Rect,
    pub(super) events: Rect,
    pub(super) alerts: Rect,
    pub(super) footer: Rect,
}

/// Lines of the device pane when there is room for all of it.
pub(super) const DEVICE_FULL: u16 = 8;
/// Frame, axis, queue and utilisation of the lanes pane.
const LANES_EXTRA: u16 = 5;
/// Below the lines of many devices: the lock, the time and the policy of the shown one.
pub(super) const BELOW_LIST: u16 = 3;
/// Frame, axis and columns of the graphs.
const HISTORY: u16 = 8;
/// What they may have beyond that before the events get the rest.
const HISTORY_MORE: u16 = 6;
/// Frame and heading of the table.
const TABLE_EXTRA: u16 = 3;

pub(super) fn main(area: Rect, state: &State) -> Parts {
    let data = state.data();
    let (width, height) = (area.width, area.height);
    let tall = height >= 34;
    let devices = u16::try_from(data.sample.devices.len()).unwrap_or(u16::MAX);
    let alerts = u16::try_from(data.alerts.len()).unwrap_or(u16::MAX);

    let mut left = height;
    let mut take = |wanted: u16| {
        let given = wanted.min(left);
        left -= given;
        given
    };
    let header = take(1);
    let footer = if height >= 4 { take(1) } else { 0 };
    let grid = grid(width, devices.into());
    let time = u16::from(height >= 24 && devices > 0);
    let device = match (height, width, devices) {
        (0..8, _, _) => take(1),
        (34.., 100.., 0 | 1) => take(DEVICE_FULL),
        (34.., 100.., 2..=FEW) => take(DEVICE_FULL + devices),
        (34.., 100.., _) => take(devices.min(height / 4) + BELOW_LIST),
        (16.., _, 2) => take(3 + time),
        (20.., _, _) => take(
            2 + time
                + if devices > 2 {
                    grid.min(if tall { 8 } else { 3 })
                } else {
                    0
                },
        ),
        (16.., _, 3..) => take(3),
        _ => take(2),
    };
    let alerts = match height {
        0..10 => 0,
        10..34 => take(alerts.min(1)),
        _ => take(alerts.min(if height >= 50 { 6 } else { 3 })),
    };
    let mut history = match (width, height) {
        (160.., 44..) if devices > 0 => take(HISTORY),
        _ => 0,
    };
    let mut events = match height {
        0..34 => 0,
        34..60 => take(6),
        _ => take(height / 5),
    };

    let on_gpu = u16::try_from(data.on(state.choices.gpu).len())
        .unwrap_or(u16::MAX)
        .max(1);
    let lanes_wanted = on_gpu.saturating_add(LANES_EXTRA);
    let table_wanted = super::table::lines(state)
        .max(1)
        .saturating_add(TABLE_EXTRA);
    // Processes that do not fit matter more than the oldest events.
    let missing = lanes_wanted
        .saturating_add(table_wanted)
        .saturating_sub(left);
    let given = missing.min(events.saturating_sub(4));
    events -= given;
    let left = left + given;
    let lanes = match left {
        0..6 => 0,
        left if lanes_wanted.saturating_add(table_wanted) <= left => lanes_wanted,
        left => lanes_wanted.min((left * 11 / 20).max(left.saturating_sub(table_wanted))),
    };
    // What the table does not need shows more of what happened.
    let mut spare = left.saturating_sub(lanes).saturating_sub(table_wanted);
    if history > 0 {
        let more = spare.min(HISTORY_MORE);
        (history, spare) = (history + more, spare - more);
    }
    if events > 0 {
        events += spare;
    }
    let table = height - header - device - lanes - history - events - alerts - footer;

    let mut y = area.y;
    let mut part = |height: u16| {
        let part = Rect::new(area.x, y, width, height);
        y += height;
        part
    };
    Parts {
        header: part(header),
        device: part(device),
        lanes: part(lanes),
        table: part(table),
        history: part(history),
        events: part(events),
        alerts: part(alerts),
        footer: part(footer),
    }
}

/// So many devices have a line each beside the whole card of one; more have the lines only.
const FEW: u16 = 4;

/// How the devices share their part of the screen.
pub(super) struct Devices {
    /// The shown one in full.
    pub(super) card: bool,
    /// A line for each.
    pub(super) list: bool,
}

/// What [`main`] gave the devices room for.
pub(super) fn devices(width: u16, height: u16, count: usize) -> Devices {
    let few = count <= usize::from(FEW);
    Devices {
        card: few && height >= DEVICE_FULL && width >= 100,
        list: !few && width >= 100 && height > FEW + BELOW_LIST,
    }
}

/// Whether a part for devices that are shown in few lines has one for what became of the time: it is one line more than the
/// others take.
pub(super) fn has_time(width: u16, height: u16, count: usize) -> bool {
    let others = match count {
        0..=2 => count,
        _ => usize::from(grid(width, count).min(if height > 6 { 8 } else { 3 })) + 1,
    };
    usize::from(height) > others + 1
}

/// The lines of the grid.
fn grid(width: u16, count: usize) -> u16 {
    u16::try_from(count.div_ceil(grid_line(width))).unwrap_or(u16::MAX)
}

/// The columns of a device in the grid of all.
pub(super) const GRID: u16 = 20;

/// How many devices stand in a line of the grid.
pub(super) fn grid_line(width: u16) -> usize {
    usize::from(width / GRID).max(1)
}

/// A box of this size in the middle, smaller if need be.
pub(super) fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    Rect::new(x, y, width, height)
}
