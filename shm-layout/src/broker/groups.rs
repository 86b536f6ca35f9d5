//! Which groups there are and who is in them stands in the roll. The table in the state is for the tools, and tenants write it: who
//! renamed a group there would have its next member in a group of its own, with a limit of its own.

use crate::{
    codec::NameWords,
    layout::{
        registry::{Roll, RollGroup},
        state::State,
    },
    value::SlotId,
};

/// The place of the group of this name, whether it has members or not. There are as many places as slots, so a slot that is
/// in no group finds one.
pub(super) fn place(roll: &Roll, name: &NameWords) -> Option<usize> {
    let is_it = |group: &RollGroup| group.is_used() && group.name() == *name;
    let known = roll.groups.iter().position(is_it);
    known.or_else(|| roll.groups.iter().position(|group| !group.is_used()))
}

/// Enters a slot in the group of this name at its place, or in none: the group's index + 1, or 0.
pub(super) fn enter(
    roll: &Roll,
    state: &State,
    slot: SlotId,
    group: Option<(usize, NameWords)>,
) -> u32 {
    let Some((index, name)) = group else {
        roll.enter(slot, 0);
        return 0;
    };
    roll.groups[index].rename(&name);
    let member = index as u32 + 1;
    roll.enter(slot, member);
    write(roll, state, index);
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
