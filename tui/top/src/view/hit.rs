//! The items under the mouse on the main screen. The parts are laid out as for drawing.

use ratatui::layout::{Position, Rect};

use super::{device, empty, lanes, layout, pen, strip, table};
use crate::state::{Grip, Hit, Pulled, Screen, State};

fn parts(area: Rect, state: &State) -> Option<layout::Parts> {
    (state.choices.screen == Screen::Main).then(|| layout::main(area, state))
}

pub(super) fn at(area: Rect, state: &State, x: u16, y: u16) -> Option<Hit> {
    let parts = parts(area, state).filter(|_| !empty::is_shown(state))?;
    let here = |part: Rect| {
        part.contains(Position::new(x, y))
            .then(|| (x - part.x, y - part.y))
    };
    if here(parts.table).is_some() {
        return table::hit(table::inside(parts.table, parts.open), state, x, y);
    }
    if here(parts.lanes).is_some() {
        return lanes::hit(pen::inside(parts.lanes, parts.open), state, y);
    }
    if let Some((x, y)) = here(parts.device) {
        return device::hit(parts.device, parts.devices, state, x, y);
    }
    if here(parts.sentence).is_some() {
        return Some(Hit::Alert(0));
    }
    here(parts.alerts).map(|(_, y)| Hit::Alert(usize::from(y) + 1))
}

pub(super) fn grip(area: Rect, state: &State, x: u16, y: u16) -> Option<Grip> {
    let parts = parts(area, state)?;
    if strip::shows_time(parts.strip(), state, x, y) {
        return Some(Grip::Strip);
    }
    if empty::is_shown(state) {
        return None;
    }
    if parts.device.contains(Position::new(x, y)) {
        let who = device::tick(&parts, state, x, y)?;
        return Some(Grip::Quota(who, state.choices.gpu));
    }
    let lanes = pen::inside(parts.lanes, parts.open);
    let there = lanes.contains(Position::new(x, y)) && lanes::shows_time(lanes, state, x);
    there.then_some(Grip::Lanes)
}

pub(super) fn pulled(area: Rect, state: &State, grip: Grip, x: u16) -> Option<Pulled> {
    let parts = parts(area, state)?;
    match grip {
        Grip::Quota(who, gpu) if gpu == state.choices.gpu => {
            let y = parts.device.y + device::TICKS;
            if device::tick(&parts, state, x, y) == Some(who) {
                // The button was pressed without a movement.
                return None;
            }
            let bytes = device::quota_at(parts.device, state, who, x)?;
            Some(Pulled::Quota(who, gpu, bytes))
        }
        Grip::Quota(..) => None,
        Grip::Lanes => {
            let lanes = pen::inside(parts.lanes, parts.open);
            Some(Pulled::Moment(lanes::moment_at(lanes, state, x)))
        }
        Grip::Strip => strip::moment_at(parts.strip(), state, x).map(Pulled::Moment),
    }
}
