//! Who gets how many lines. What answers *who holds, who waits* goes last when the screen shrinks.

use ratatui::layout::Rect;

use crate::top::state::State;

/// The parts of the main screen, from the top; a part without room has no height.
pub(super) struct Parts {
    pub(super) header: Rect,
    pub(super) device: Rect,
    pub(super) lanes: Rect,
    pub(super) table: Rect,
    pub(super) events: Rect,
    pub(super) alerts: Rect,
    pub(super) footer: Rect,
}

/// Lines of the device pane when there is room for all of it.
pub(super) const DEVICE_FULL: u16 = 7;
/// Frame, axis, queue and utilisation of the lanes pane.
const LANES_EXTRA: u16 = 5;
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
    let device = match (height, width) {
        (0..8, _) => take(1),
        (34.., 100..) => take(DEVICE_FULL),
        (20.., _) => take(2 + devices.saturating_sub(1).min(if tall { 4 } else { 1 })),
        _ => take(2),
    };
    let alerts = match height {
        0..10 => 0,
        10..34 => take(alerts.min(1)),
        _ => take(alerts.min(if height >= 50 { 6 } else { 3 })),
    };
    let mut events = match height {
        0..34 => 0,
        34..50 => take(6),
        _ => take(height / 5),
    };

    let on_gpu = u16::try_from(data.on(state.choices.gpu).len())
        .unwrap_or(u16::MAX)
        .max(1);
    let lanes_wanted = on_gpu.saturating_add(LANES_EXTRA);
    let table_wanted = u16::try_from(state.rows().len())
        .unwrap_or(u16::MAX)
        .max(1)
        .saturating_add(TABLE_EXTRA);
    let lanes = match left {
        0..6 => 0,
        left if lanes_wanted.saturating_add(table_wanted) <= left => lanes_wanted,
        left => lanes_wanted.min((left * 11 / 20).max(left.saturating_sub(table_wanted))),
    };
    // What the table does not need shows more of what happened.
    let spare = left.saturating_sub(lanes).saturating_sub(table_wanted);
    if events > 0 {
        events += spare;
    }
    let table = height - header - device - lanes - events - alerts - footer;

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
        events: part(events),
        alerts: part(alerts),
        footer: part(footer),
    }
}

/// A box of this size in the middle, smaller if need be.
pub(super) fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    Rect::new(x, y, width, height)
}
