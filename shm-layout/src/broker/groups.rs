//! Which groups there are and who is in them stands in the roll. The table in the state is for the tools, and tenants write it: who
//! renamed a group there would have its next member in a group of its own, with a limit of its own.

use crate::{
    codec::NameWords,
    roll::{Roll, RollGroup},
    state::State,
    value::SlotId,
};

/// Enters a slot, in the group of this name: the group's index + 1; 0 for none, or where there is no room for one more.
pub(super) fn enter(roll: &Roll, state: &State, slot: SlotId, name: Option<&NameWords>) -> u32 {
    let found = name.and_then(|name| {
        let is_it = |group: &RollGroup| group.is_used() && group.name() == *name;
        let known = roll.groups.iter().position(is_it);
        let index = known.or_else(|| roll.groups.iter().position(|group| !group.is_used()))?;
        roll.groups[index].rename(name);
        Some(index)
    });
    let member = found.map_or(0, |index| index as u32 + 1);
    roll.enter(slot, member);
    if let Some(index) = found {
        write(roll, state, index);
    }
    member
}

/// Puts right what was written over.
pub(super) fn repair(roll: &Roll, state: &State) {
    for (index, group) in roll.groups.iter().enumerate() {
        if group.is_used() {
            write(roll, state, index);
        }
    }
}

fn write(roll: &Roll, state: &State, index: usize) {
    let name = roll.groups[index].name();
    if state.group_name(index as u32 + 1) != Some(name) {
        state.write_group(index, &name);
    }
}
