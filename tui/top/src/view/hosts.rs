//! The list of machines, one line each.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Look;
use super::pen::Pen;
use crate::palette::Role;

/// The line of one machine.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The machine's name.
    pub name: String,
    /// GPUs, busy ones, processes, waiting ones, refused allocations, warnings, memory; empty for a machine that does
    /// not answer.
    pub cells: [String; 7],
    /// The fault of the machine.
    pub note: String,
    /// Set if the machine does not answer.
    pub lost: bool,
    /// Set if the machine has a warning.
    pub warns: bool,
}

/// The headings of the cells.
const TITLES: [(&str, u16); 7] = [
    ("GPUS", 4),
    ("BUSY", 5),
    ("PROCS", 6),
    ("WAIT", 5),
    ("DENY", 6),
    ("ALERTS", 7),
    ("MEMORY", 16),
];
/// The minimum and maximum width of the column of names.
const NAMES: (u16, u16) = (8, 40);

/// Draws all machines. `said` is the message about the last key.
pub fn draw(
    buffer: &mut Buffer,
    area: Rect,
    lines: &[Line],
    selected: usize,
    said: &str,
    look: &Look,
) {
    let mut pen = Pen::new(buffer, area, &look.palette);
    let here = lines.iter().filter(|line| !line.lost).count();
    let count = format!("  {here} of {} machines answer", lines.len());
    pen.pieces(
        0,
        0,
        &[(" gpushare-top", Role::Title), (&count, Role::Text)],
    );
    let bottom = pen.height().saturating_sub(1);
    let body = Rect::new(area.x, area.y + 1, area.width, bottom.saturating_sub(1));
    let mut frame = pen.part(body);
    let mut inside = frame.pane("Machines", "");
    let longest = lines.iter().map(|line| line.name.chars().count()).max();
    let name = u16::try_from(longest.unwrap_or(0))
        .unwrap_or(u16::MAX)
        .clamp(NAMES.0, NAMES.1);
    let dim = inside.style(Role::Dim);
    inside.put(0, 0, "HOST", dim);
    let mut end = name;
    for (title, width) in TITLES {
        end += width + 1;
        inside.put_before(end, 0, title, dim);
    }
    let room = usize::from(inside.height().saturating_sub(1));
    let first = (selected + 1).saturating_sub(room);
    for ((at, line), y) in lines.iter().enumerate().skip(first).take(room).zip(1..) {
        let role = match (line.lost, line.warns) {
            (true, _) => Role::Bad,
            (_, true) => Role::Warn,
            _ => Role::Text,
        };
        let style = inside.style(role);
        inside.put_within(0, y, &line.name, name, style);
        let mut end = name;
        for (cell, (_, width)) in line.cells.iter().zip(TITLES) {
            end += width + 1;
            if !line.lost {
                inside.put_before(end, y, cell, style);
            }
        }
        let start = if line.lost { name } else { end };
        inside.put_within(start + 2, y, &line.note, u16::MAX, style);
        if at == selected {
            let style = inside.style(Role::Selected);
            inside.mark_line(y, style);
        }
    }
    let keys = [
        (" Enter", Role::Key),
        (" open  ", Role::Dim),
        ("r", Role::Key),
        (" ask again  ", Role::Dim),
        ("q", Role::Key),
        (" quit  ", Role::Dim),
        (said, Role::Warn),
    ];
    pen.pieces(0, bottom, &keys);
}
