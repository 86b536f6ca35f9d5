//! Which groups there are and who is in them, in the broker's own memory: the table in the state is for others to read, and tenants
//! write it. Who renamed a group there would have its next member in a group of its own, with a limit of its own.

use crate::{
    codec::NameWords,
    primitive::Ordering,
    state::State,
    value::{MAX_GROUPS, MAX_PROCESSES},
};

/// The groups that processes are in.
pub(super) struct Groups {
    names: [Option<NameWords>; MAX_GROUPS],
    /// By slot: the group's index + 1; 0 for none.
    of_slot: [u32; MAX_PROCESSES],
}

impl Groups {
    pub(super) fn new() -> Groups {
        Groups {
            names: [None; MAX_GROUPS],
            of_slot: [0; MAX_PROCESSES],
        }
    }

    /// A slot's process is in the group of this name: the group's index + 1, or 0 where there is no room for one more.
    pub(super) fn enter(&mut self, state: &State, slot: usize, name: &NameWords) -> u32 {
        let mut all = 0..MAX_GROUPS;
        let is_it =
            |index: &usize| self.names[*index].as_ref() == Some(name) && self.is_used(*index);
        let known = all.clone().find(is_it);
        let Some(index) = known.or_else(|| all.find(|index| !self.is_used(*index))) else {
            return 0;
        };
        self.names[index] = Some(*name);
        self.of_slot[slot] = index as u32 + 1;
        self.write(state, index);
        index as u32 + 1
    }

    /// A slot that an earlier broker gave: what the state says is all there is to know.
    pub(super) fn inherit(&mut self, state: &State, slot: usize) {
        let member = state.slots[slot].group.load(Ordering::Relaxed);
        if let Some(name) = state.group_name(member) {
            self.names[member as usize - 1] = Some(name);
            self.of_slot[slot] = member;
        }
    }

    /// A slot is free.
    pub(super) fn leave(&mut self, slot: usize) {
        self.of_slot[slot] = 0;
    }

    /// Puts right what was written over.
    pub(super) fn repair(&self, state: &State) {
        for index in (0..MAX_GROUPS).filter(|index| self.is_used(*index)) {
            self.write(state, index);
        }
    }

    fn write(&self, state: &State, index: usize) {
        if let Some(name) = &self.names[index]
            && state.group_name(index as u32 + 1).as_ref() != Some(name)
        {
            state.write_group(index, name);
        }
    }

    fn is_used(&self, index: usize) -> bool {
        self.of_slot.contains(&(index as u32 + 1))
    }
}
