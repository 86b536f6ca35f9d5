//! What lies under the mouse on the main screen. The parts are measured as they are drawn.

use ratatui::layout::{Position, Rect};

use super::{device, lanes, layout, table};
use crate::top::state::{Hit, Screen, State};

pub(super) fn at(area: Rect, state: &State, x: u16, y: u16) -> Option<Hit> {
    if state.choices.screen != Screen::Main || state.data().sample.processes.is_empty() {
        return None;
    }
    let parts = layout::main(area, state);
    let here = |part: Rect| {
        part.contains(Position::new(x, y))
            .then(|| (x - part.x, y - part.y))
    };
    if let Some((x, y)) = here(parts.table) {
        return table::hit(parts.table, state, x, y);
    }
    if let Some((_, y)) = here(parts.lanes) {
        return lanes::hit(parts.lanes, state, y);
    }
    if let Some((x, y)) = here(parts.device) {
        return device::hit(parts.device, state, x, y);
    }
    here(parts.alerts).map(|(_, y)| Hit::Alert(y.into()))
}
