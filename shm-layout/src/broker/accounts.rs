//! The memory of each process's accounts (`private_account`). It is made for one life of a slot and handed to that process to
//! write. Once the process has it mapped, all others may read it.

use std::{
    fs::{File, Permissions},
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{
    Account, Broker,
    find::{self, Mapping},
    looks::Looks,
    registry_of,
};
use crate::{
    broker::socket::SEALS,
    layout::{private_account, registry::RegistryEntry},
    value::SlotId,
};

/// Memory for a process's accounts, and its inode.
pub(super) fn make() -> io::Result<(File, u64)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = File::from(memfd_create(private_account::NAME, flags)?);
    memory.set_permissions(Permissions::from_mode(0o600))?;
    ftruncate(&memory, private_account::SIZE)?;
    // The last seals come when its process has it mapped.
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW)?;
    let inode = memory.metadata()?.ino();
    Ok((memory, inode))
}

impl Broker {
    /// The memory of a slot's accounts, for its process to write.
    pub fn accounts(&self, slot: SlotId) -> io::Result<OwnedFd> {
        let memory = self.accounts[usize::from(slot.index)].as_ref();
        let memory = memory.ok_or(io::ErrorKind::NotFound)?;
        Ok(memory.try_clone()?.into())
    }

    /// Marks that the process of a slot has mapped its accounts. No other process can write them any more, and they count.
    pub fn begin(&self, slot: SlotId) {
        let index = usize::from(slot.index);
        let Some(entry) = registry_of(&self.segments).entry(index) else {
            return;
        };
        if let Some(memory) = &self.accounts[index] {
            if fcntl_add_seals(memory, SEALS | SealFlags::FUTURE_WRITE).is_err() {
                // A kernel before 5.1. There, as without a read-only mount, root in a container may write to the files that it
                // gets for reading.
                let _ = fcntl_add_seals(memory, SEALS);
            }
            entry.begin(slot.epoch);
        }
    }

    /// The accounts of these slots, to read: of those among them that have begun.
    pub fn accounts_of(
        &mut self,
        slots: impl Iterator<Item = SlotId>,
    ) -> io::Result<Vec<(SlotId, OwnedFd)>> {
        let mut found = Vec::new();
        for slot in slots {
            let index = usize::from(slot.index);
            // It may have mapped them since the last look.
            self.begin_inherited(slot);
            let registry = registry_of(&self.segments);
            let entry = registry.entry(index);
            let Some(entry) = entry.filter(|entry| entry.begun() == Some(slot.epoch)) else {
                continue;
            };
            if self.accounts[index].is_none() {
                self.accounts[index] = look(&mut self.looks, &self.owners[index], entry, slot);
            }
            let Some(memory) = &self.accounts[index] else {
                continue;
            };
            let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
            found.push((slot, File::open(path)?.into()));
        }
        Ok(found)
    }

    /// Looks for the accounts of a process that has its slot from an earlier broker and has not begun.
    pub(super) fn begin_inherited(&mut self, slot: SlotId) {
        let index = usize::from(slot.index);
        if let Some(entry) = registry_of(&self.segments).entry(index)
            && entry.live() == Some(slot.epoch)
            && entry.begun().is_none()
            && self.accounts[index].is_none()
        {
            self.accounts[index] = look(&mut self.looks, &self.owners[index], entry, slot);
            self.begin(slot);
        }
    }
}

/// The accounts that an earlier broker made, where there is time to look for them.
pub(super) fn look(
    looks: &mut Looks,
    owner: &Option<Account>,
    entry: &RegistryEntry,
    slot: SlotId,
) -> Option<File> {
    looks
        .look(owner.as_ref()?, || inherited(entry, slot))
        .flatten()
}

/// Finds the memfd of a process's account in the process that has it mapped.
fn inherited(entry: &RegistryEntry, slot: SlotId) -> Option<File> {
    let memory = match find::mapping(entry.pid()?, entry.account_inode(), private_account::NAME) {
        Mapping::At(memory) => memory,
        Mapping::Unknown => return None,
        Mapping::None => {
            // The process has unmapped its accounts. They are not counted, or all others would ask for them again and again.
            entry.withdraw(slot.epoch);
            return None;
        }
    };
    let meta = memory.metadata().ok()?;
    (meta.ino() == entry.account_inode() && meta.uid() == 0).then_some(memory)
}
