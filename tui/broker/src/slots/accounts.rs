//! The accounts of processes: handed to their processes to write, and to others to read.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use shm_layout::SlotId;
use shm_layout::broker::{ACCOUNTS, are_accounts};

use super::Slots;
use crate::mappings::{Mapping, mapping};

impl Slots {
    /// The memory of a slot's accounts, for its process to write.
    pub fn accounts(&self, slot: SlotId) -> io::Result<OwnedFd> {
        let memory = self.accounts[usize::from(slot.index)].as_ref();
        let memory = memory.ok_or(io::ErrorKind::NotFound)?;
        Ok(memory.try_clone()?.into())
    }

    /// Marks that the process of a slot has mapped its accounts.
    pub fn begin(&self, slot: SlotId) {
        if let Some(memory) = &self.accounts[usize::from(slot.index)] {
            self.broker.begin(slot, memory);
        }
    }

    /// The accounts of these slots, to read: of those among them that have begun.
    pub fn accounts_of(
        &mut self,
        slots: impl Iterator<Item = SlotId>,
    ) -> io::Result<Vec<(SlotId, OwnedFd)>> {
        let mut found = Vec::new();
        for slot in slots {
            // The process may have mapped the segments since the last look.
            self.begin_inherited(slot);
            if !self.broker.has_begun(slot) {
                continue;
            }
            self.look_for(slot);
            let Some(memory) = &self.accounts[usize::from(slot.index)] else {
                continue;
            };
            let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
            found.push((slot, File::open(path)?.into()));
        }
        Ok(found)
    }

    /// Looks for the accounts of a process that has its slot from an earlier broker and has not begun.
    pub(super) fn begin_inherited(&mut self, slot: SlotId) {
        if !self.broker.has_begun(slot) && self.look_for(slot) {
            self.begin(slot);
        }
    }

    /// Looks for accounts that an earlier broker made, where there is time for it. Returns true if it found them.
    pub(super) fn look_for(&mut self, slot: SlotId) -> bool {
        let index = usize::from(slot.index);
        // A tenant may ask for a slot that no table has.
        let (Some(None), Some(Some(owner))) = (self.accounts.get(index), self.owners.get(index))
        else {
            return false;
        };
        let found = self.looks.look(owner, || {
            let (pid, inode) = self.broker.has_accounts(slot)?;
            let memory = match mapping(pid, inode, ACCOUNTS) {
                Mapping::At(memory) => memory,
                Mapping::Unknown => return None,
                Mapping::None => {
                    self.broker.withdraw(slot);
                    return None;
                }
            };
            are_accounts(&memory).then_some(())?;
            let meta = memory.metadata().ok()?;
            (meta.ino() == inode && meta.uid() == 0).then_some(memory)
        });
        self.accounts[index] = found.flatten();
        self.accounts[index].is_some()
    }
}
