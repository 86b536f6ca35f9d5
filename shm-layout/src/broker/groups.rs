//! The broker's part in groups. The registry names the groups and their members. The table in the state serves only the tools,
//! because tenants can write it: a tenant that renamed a group there would otherwise give the group's next member a second
//! group with its own limit.

use crate::{
    layout::{
        codec::NameWords,
        registry::{Registry, RegistryGroup},
        state::State,
    },
    value::SlotId,
};

/// Returns the place of the group of this name, with or without members. There are as many places as slots, so a slot in no
/// group finds a free one.
pub(super) fn place(registry: &Registry, name: &NameWords) -> Option<usize> {
    let is_it = |group: &RegistryGroup| group.is_used() && group.name() == *name;
    let known = registry.groups.iter().position(is_it);
    known.or_else(|| registry.groups.iter().position(|group| !group.is_used()))
}

/// Enters a slot in the group of this name at its place, or in none: the group's index + 1, or 0.
pub(super) fn enter(
    registry: &Registry,
    state: &State,
    slot: SlotId,
    group: Option<(usize, NameWords)>,
) -> u32 {
    let Some((index, name)) = group else {
        registry.enter(slot, 0);
        return 0;
    };
    registry.groups[index].rename(&name);
    let member = index as u32 + 1;
    registry.enter(slot, member);
    write(registry, state, index);
    member
}

/// Repairs words that tenants overwrote.
pub(super) fn repair(registry: &Registry, state: &State) {
    for (index, group) in registry.groups.iter().enumerate() {
        if group.is_used() {
            write(registry, state, index);
        }
    }
}

fn write(registry: &Registry, state: &State, index: usize) {
    let name = registry.groups[index].name();
    if state.group_name(index as u32 + 1) != Some(name) {
        state.write_group(index, &name);
    }
}
