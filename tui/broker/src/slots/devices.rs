//! Places in the device table. A device gets one when a process asks for it. When all places are taken, it gets that of a device
//! which no process's accounts name.

use shm_layout::broker::devices_in;
use shm_layout::{MAX_DEVICES, MAX_PROCESSES, NoDevice, Uuid};

use super::Slots;
use crate::account::Account;

/// Places at the end that are kept for users with at most [`FEW`] devices that no other user has. So a tenant that invents
/// devices cannot keep another user's devices out.
const RESERVED: usize = 8;
const FEW: usize = 8;

fn names(named: &[(&Account, Vec<Uuid>)], uuid: &Uuid) -> bool {
    named.iter().any(|(_, devices)| devices.contains(uuid))
}

impl Slots {
    /// Gives a device its place in the registry, unless it has one. `account` made the request. The error is a sentence.
    pub fn enter_device(&mut self, account: &Account, uuid: Uuid) -> Result<(), String> {
        if self.broker.devices().any(|known| known == uuid) {
            return Ok(());
        }
        // The slots that an earlier broker handed out may hold devices too.
        for slot in (0..MAX_PROCESSES)
            .filter_map(|index| self.broker.live(index))
            .collect::<Vec<_>>()
        {
            self.look_for(slot);
        }
        let named = self.named();
        let (mut taken, mut alone) = (0, 0);
        for uuid in self.broker.devices() {
            let users = named.iter().filter(|(_, devices)| devices.contains(&uuid));
            let mut users = users.map(|(user, _)| *user).peekable();
            let is_used = users.peek().is_some();
            taken += usize::from(is_used);
            alone += usize::from(is_used && users.all(|user| user == account));
        }
        let free = MAX_DEVICES - taken;
        if free <= RESERVED && alone >= FEW {
            return Err(format!(
                "programs use {taken} devices; the last {free} of {MAX_DEVICES} places are kept for users who have less than {FEW} to \
                 themselves, and {account} has {alone}; end some programs"
            ));
        }
        // Read again only for a device that is about to lose its place: its process may have entered it by now.
        let is_used = |uuid| names(&named, &uuid) || names(&self.named(), &uuid);
        match self.broker.place_device(uuid, is_used) {
            true => Ok(()),
            false => Err(NoDevice::Machine.to_string()),
        }
    }

    /// Reads the devices that the accounts of all processes name now.
    fn named(&self) -> Vec<(&Account, Vec<Uuid>)> {
        let slots = self.owners.iter().zip(&self.accounts);
        let named = slots.filter_map(|(owner, memory)| {
            let devices = devices_in(memory.as_ref()?).ok()?;
            Some((owner.as_ref()?, devices.collect()))
        });
        named.collect()
    }
}
