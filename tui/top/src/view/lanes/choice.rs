//! The processes that have a lane, when not all of them fit or the user has chosen some.

use std::cmp::Reverse;

use crate::state::{Lanes, State};
use gpushare_sample::Who;

/// Returns the processes of which the user wants to see lanes, from the first that is scrolled to: those that do not fit come
/// last.
pub(super) fn chosen(state: &State, all: &[Who], lines: usize) -> Vec<Who> {
    let choices = &state.choices;
    let mut wanted = match choices.lanes {
        Lanes::Busy if all.len() > lines => by_interest(state, all),
        Lanes::Busy => all.to_vec(),
        Lanes::Listed => listed(state, all),
        Lanes::Marked => {
            let marked = all.iter().filter(|who| choices.marked.contains(who));
            marked.copied().collect()
        }
    };
    wanted.drain(..choices.lanes_from.min(wanted.len().saturating_sub(lines)));
    wanted.truncate(lines);
    if choices.lanes == Lanes::Busy {
        let place = |who: &Who| all.iter().position(|other| other == who);
        wanted.sort_by_key(place);
    }
    wanted
}

/// Returns the processes of the list, in its order.
fn listed(state: &State, all: &[Who]) -> Vec<Who> {
    let rows = state.rows();
    let mut listed: Vec<Who> = Vec::new();
    for row in rows.iter().filter(|row| all.contains(&row.who)) {
        if !listed.contains(&row.who) {
            listed.push(row.who);
        }
    }
    listed
}

/// Sorts processes: the selected one, a long-time holder, and then those that held or wanted the lock for most of the last
/// seconds.
fn by_interest(state: &State, all: &[Who]) -> Vec<Who> {
    let (data, gpu) = (state.data(), state.choices.gpu);
    let device = data.sample.devices.get(gpu);
    let holder = device.filter(|_| data.holder_is_steady(gpu));
    let holder = holder.and_then(|device| device.owner).map(Who::Slot);
    let mut ranked = all.to_vec();
    ranked.sort_by_cached_key(|who| {
        let spent = data.spent(*who, gpu);
        // In coarse steps, so that a lane does not come and go with each sample.
        let busy = ((spent.hold + spent.wait) * 4.0).round() as u8;
        let first = [state.choices.selected, holder].contains(&Some(*who));
        (!first, Reverse(busy))
    });
    ranked
}
