//! A question with its consequences, before an action.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::overlay::Question;
use crate::palette::Role;
use crate::view::{Look, layout, pen::Pen};

const WIDTH: u16 = 72;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look, question: &Question) {
    let height = u16::try_from(question.lines.len() + 4).unwrap_or(u16::MAX);
    let mut pen = Pen::new(buffer, layout::centred(area, WIDTH, height), &look.palette);
    let mut inside = pen.dialog(&question.title);
    for (line, y) in question.lines.iter().zip(0..inside.height()) {
        inside.words(1, y, line, inside.style(Role::Text));
    }
    let bottom = inside.height().saturating_sub(1);
    let keys = "y or Enter: yes   any other key: no";
    inside.hint(1, bottom, keys, inside.style(Role::Key));
}
