//! The list of reasons why each job is slow, and the edits that would help.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::alerts::wrapped;
use super::pen::Pen;
use super::{Look, layout};
use crate::palette::Role;
use crate::state::State;
use gpushare_observe::why;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, look: &Look, at: usize) {
    let gpu = state.choices.gpu;
    let all = why::explain(state.data(), gpu);
    let at = at.min(all.len().saturating_sub(1));
    let width = area.width.min(110);
    let room = width.saturating_sub(6);
    let mut lines: Vec<(usize, String, Role)> = Vec::new();
    for (number, why) in all.iter().enumerate() {
        let parts = wrapped(&why.sentence, room).into_iter();
        lines.extend(parts.map(|part| (number, part, Role::Text)));
        if let Some(remedy) = &why.remedy {
            let text = format!("Enter: {} for 10m. {}", remedy.what, remedy.effect);
            let parts = wrapped(&text, room.saturating_sub(2)).into_iter();
            lines.extend(parts.map(|part| (number, format!("  {part}"), Role::Key)));
        }
    }
    if lines.is_empty() {
        let text = format!("no job of gpushare is on GPU{gpu}");
        lines.push((0, text, Role::Dim));
    }
    let height = u16::try_from(lines.len() + 3).unwrap_or(u16::MAX);
    let mut pen = Pen::new(buffer, layout::centred(area, width, height), &look.palette);
    let mut inside = pen.dialog(&format!("Why is it slow?  GPU{gpu}"));
    let bottom = inside.height().saturating_sub(1);
    let begins = lines.partition_point(|(number, ..)| *number < at);
    let ends = lines.partition_point(|(number, ..)| *number <= at);
    // An entry that does not fit is shown from its beginning.
    let first = ends.saturating_sub(bottom.into()).min(begins);
    for ((number, text, role), y) in lines[first..].iter().zip(0..bottom) {
        inside.put_within(2, y, text, u16::MAX, inside.style(*role));
        if *number == at {
            let mark = inside.glyphs().holder;
            inside.put(0, y, mark, inside.style(Role::Title));
        }
    }
    let keys = "Down Up select   Enter tries the remedy for ten minutes (asks first)   Esc close";
    inside.put_within(1, bottom, keys, u16::MAX, inside.style(Role::Dim));
}
