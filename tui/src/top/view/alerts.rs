//! What is wrong now, one sentence a line; on a small screen the first, and how many more.

use super::pen::Pen;
use crate::top::palette::Role;
use crate::top::state::State;
use crate::top::state::alerts::Severity;

pub(super) fn draw(pen: &mut Pen<'_>, state: &State) {
    let alerts = &state.data().alerts;
    let lines = usize::from(pen.height());
    for (alert, y) in alerts.iter().take(lines).zip(0..) {
        let (mark, role) = match alert.severity {
            Severity::Warning => ("!", Role::Bad),
            Severity::Note => ("i", Role::Key),
        };
        let x = pen.put(0, y, &format!("{mark} {:<8}", alert.word), pen.style(role));
        pen.put_within(x, y, &alert.sentence, u16::MAX, pen.style(Role::Text));
    }
    let hidden = alerts.len().saturating_sub(lines);
    if hidden > 0 && lines > 0 {
        let text = format!(" +{hidden} more");
        pen.put_before(pen.width(), pen.height() - 1, &text, pen.style(Role::Warn));
    }
}
