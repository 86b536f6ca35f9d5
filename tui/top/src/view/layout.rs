//! The layout of the main screen. The lines that show which processes hold and wait are dropped last when the screen
//! shrinks.

use ratatui::layout::Rect;

use crate::state::State;

/// The parts of the main screen, from the top; a part without room has no height.
pub(super) struct Parts {
    pub(super) header: Rect,
    pub(super) sentence: Rect,
    pub(super) device: Rect,
    pub(super) lanes: Rect,
    pub(super) table: Rect,
    pub(super) history: Rect,
    pub(super) events: Rect,
    pub(super) alerts: Rect,
    pub(super) footer: Rect,
    /// The parts of the device pane.
    pub(super) devices: Devices,
    /// Set if panes have a heading and no frame, because on a small screen each line counts.
    pub(super) open: bool,
}

impl Parts {
    /// Returns the line of the strip: the lower line of the frame of the lanes, or of the pane that has their place, without
    /// the corners.
    pub(super) fn strip(&self) -> Rect {
        let frame = self.lanes;
        let height = u16::from(!self.open && frame.height > 1);
        Rect {
            x: frame.x + 1.min(frame.width),
            y: frame.bottom().saturating_sub(height),
            width: frame.width.saturating_sub(2),
            height,
        }
    }
}

/// The division of the device pane.
#[derive(Clone, Copy)]
pub(super) struct Devices {
    /// Shows the selected device in full.
    pub(super) card: bool,
    /// Shows a line for each device.
    pub(super) list: bool,
    /// Adds the time line to the lines of the shown device.
    pub(super) time: bool,
}

/// Number of lines of the device pane when all of it fits.
pub(super) const DEVICE_FULL: u16 = 8;
/// Number of lines for the axis, the queue and the utilisation in the lanes pane.
const LANES_EXTRA: u16 = 3;
/// Number of lines below the list of many devices: the lock, the time and the policy of the shown one.
pub(super) const BELOW_LIST: u16 = 3;
/// Number of lines for the frame, the axis and the columns of the graphs.
const HISTORY: u16 = 8;
/// Number of further lines for the graphs before the lanes grow beyond two rows.
const HISTORY_MORE: u16 = 6;
/// Maximum number of lines for the events while other parts can use the room.
const EVENTS: u16 = 16;
/// The width from which the sentence on top has one line.
const ONE_LINE: u16 = 120;
/// Maximum number of devices that have a line each beside the card of the shown one; with more there are only lines.
const FEW: u16 = 4;

pub(super) fn main(area: Rect, state: &State) -> Parts {
    let data = state.data();
    let (width, height) = (area.width, area.height);
    let open = height < 20;
    let frame = if open { 1 } else { 2 };
    // The first alert is the sentence on top.
    let others = u16::try_from(data.alerts.len())
        .unwrap_or(u16::MAX)
        .saturating_sub(1);

    let mut left = height;
    let mut take = |wanted: u16| {
        let given = wanted.min(left);
        left -= given;
        given
    };
    let header = take(1);
    let footer = if height >= 4 { take(1) } else { 0 };
    let sentence = match (height, width) {
        (0..10, _) => 0,
        (20.., 0..ONE_LINE) => take(2),
        _ => take(1),
    };
    let (devices, wanted) = devices(width, height, data.sample.devices.len());
    let device = take(wanted);
    let alerts = match height {
        0..34 => 0,
        50.. => take(others.min(5)),
        _ => take(others.min(2)),
    };
    let history = match (width, height) {
        (160.., 48..) if !data.sample.devices.is_empty() => take(HISTORY),
        _ => 0,
    };
    let mut events = match height {
        0..34 => 0,
        _ => take(6),
    };

    let on_gpu = u16::try_from(data.on(state.choices.gpu).len())
        .unwrap_or(u16::MAX)
        .max(1);
    let lanes_wanted = on_gpu.saturating_add(LANES_EXTRA + frame);
    let is_empty = super::empty::is_shown(state);
    let table_wanted = match is_empty {
        true => super::empty::HEIGHT.saturating_sub(lanes_wanted),
        false => super::table::lines(state).max(1).saturating_add(1 + frame),
    };
    // Processes that do not fit matter more than the oldest events.
    let missing = lanes_wanted
        .saturating_add(table_wanted)
        .saturating_sub(left);
    let given = missing.min(events.saturating_sub(4));
    events -= given;
    let left = left + given;
    let lanes = lanes(left, lanes_wanted, table_wanted, open);
    let spare = left.saturating_sub(lanes).saturating_sub(table_wanted);
    let parts = [lanes, history, events, alerts];
    let [lanes, history, events, alerts] = grow(state, height, on_gpu, others, spare, parts);
    let table = height - header - sentence - device - lanes - history - events - alerts - footer;
    // Without a process one pane takes the place of both.
    let (lanes, table) = match is_empty {
        true => (lanes + table, 0),
        false => (lanes, table),
    };

    let mut y = area.y;
    let mut part = |height: u16| {
        let part = Rect::new(area.x, y, width, height);
        y += height;
        part
    };
    Parts {
        header: part(header),
        sentence: part(sentence),
        device: part(device),
        lanes: part(lanes),
        table: part(table),
        history: part(history),
        events: part(events),
        alerts: part(alerts),
        footer: part(footer),
        devices,
        open,
    }
}

/// Gives the spare lines to the lanes, the history, the events and the other alerts, and returns their heights. Lines that the
/// table does not need make the lanes two rows high, then show more events, and then enlarge all of them.
fn grow(
    state: &State,
    height: u16,
    on_gpu: u16,
    others: u16,
    mut spare: u16,
    [mut lanes, mut history, mut events, mut alerts]: [u16; 4],
) -> [u16; 4] {
    let mut give = |part: &mut u16, most: u16, step: u16| {
        let given = spare.min(most) / step * step;
        *part += given;
        spare -= given;
    };
    let rows = on_gpu.saturating_mul(super::lanes::TALLEST - 2);
    give(&mut lanes, on_gpu, on_gpu);
    if events > 0 {
        let wanted = super::events::lines(state, EVENTS).next_multiple_of(4) + 2;
        give(&mut events, wanted.saturating_sub(6), 1);
    }
    if history > 0 {
        give(&mut history, HISTORY_MORE, 1);
    }
    give(&mut lanes, rows, on_gpu);
    if height >= 24 && alerts == 0 {
        alerts = others.min(2).min(spare);
        spare -= alerts;
    }
    match (history, events) {
        (0, 0) if height >= 24 && spare >= 3 => events = spare,
        (0, 0) => {}
        (0, _) => events += spare,
        _ => history += spare,
    }
    [lanes, history, events, alerts]
}

/// Returns the number of lines for the lanes, which share `left` lines with the table.
fn lanes(left: u16, wanted: u16, table_wanted: u16, open: bool) -> u16 {
    let share = match open {
        true => (left * 11).div_ceil(20),
        false => left * 11 / 20,
    };
    match left {
        0..6 => 0,
        left if wanted.saturating_add(table_wanted) <= left => wanted,
        left => wanted.min(share.max(left.saturating_sub(table_wanted))),
    }
}

/// Returns the number of lines of a pane whose lanes have so many rows together.
pub(super) fn lanes_height(rows: u16) -> u16 {
    rows.saturating_add(LANES_EXTRA + 2)
}

/// Returns the division of the device pane for this screen, and its number of lines.
pub(super) fn devices(width: u16, height: u16, count: usize) -> (Devices, u16) {
    let lines = u16::try_from(count).unwrap_or(u16::MAX);
    let mut devices = Devices {
        card: false,
        list: false,
        time: height >= 10 && count > 0,
    };
    let time = u16::from(devices.time);
    let wanted = match (height, width, lines) {
        (0..8, ..) => 1,
        (34.., 100.., ..=FEW) => {
            devices.card = true;
            DEVICE_FULL + if lines > 1 { lines } else { 0 }
        }
        (34.., 100.., _) => {
            devices.list = true;
            lines.min(height / 4) + BELOW_LIST
        }
        (..16, ..) | (.., 0 | 1) => 2 + time,
        (.., 2) => 3 + time,
        _ => 2 + time + grid(width, count).min(if height >= 34 { 8 } else { 3 }),
    };
    (devices, wanted)
}

/// Returns the number of lines of the grid.
fn grid(width: u16, count: usize) -> u16 {
    u16::try_from(count.div_ceil(grid_line(width))).unwrap_or(u16::MAX)
}

/// The width of a device in the grid.
pub(super) const GRID: u16 = 20;

/// Returns the number of devices in a line of the grid.
pub(super) fn grid_line(width: u16) -> usize {
    usize::from(width / GRID).max(1)
}

/// Returns a box of this size in the middle, smaller if necessary.
pub(super) fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    Rect::new(x, y, width, height)
}
