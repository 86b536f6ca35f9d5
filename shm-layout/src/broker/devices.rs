//! The broker's part in the device table. It enters a device when a process asks for it. When all places are taken, it takes
//! back one whose device no process's private account names.

use std::os::unix::fs::FileExt as _;

use super::{Account, Broker, accounts::look, registry_of};
use crate::{
    layout::{codec, private_account::PrivateAccount, state::Device},
    protocol::primitive::Ordering,
    register::NoDevice,
    value::{DEVICES_PER_PROCESS, MAX_DEVICES, MAX_PROCESSES, SlotId, Uuid},
};

/// Places at the end that are kept for users with at most [`FEW`] devices that no other user has. So a tenant that invents
/// devices cannot keep another user's devices out.
const RESERVED: usize = 8;
const FEW: usize = 8;

/// The device UUIDs in the private accounts of a user's processes.
type Named = [[u64; 2]; DEVICES_PER_PROCESS];

impl Broker {
    /// Gives a device its place in the registry, unless it has one. `account` made the request. The error is a sentence.
    pub fn enter_device(&mut self, account: &Account, uuid: Uuid) -> Result<(), String> {
        let words = codec::uuid_words(&uuid).into();
        if registry_of(&self.segments).device(words).is_some() {
            return Ok(());
        }
        self.open_accounts();
        let named = self.named();
        let users = |uuid: [u64; 2]| {
            let all = named.iter();
            all.filter(move |(_, devices)| devices.contains(&uuid))
                .map(|(user, _)| *user)
        };
        let devices = &registry_of(&self.segments).devices;
        let (mut taken, mut alone) = (0, 0);
        for uuid in devices.iter().filter_map(|device| device.uuid()) {
            let mut users = users(uuid).peekable();
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
        // First places that no device had, so that a device that returns finds its own place.
        let place = devices.iter().find(|device| device.uuid().is_none());
        let place = place.or_else(|| {
            let is_used = |uuid| self.named().iter().any(|(_, named)| named.contains(&uuid));
            devices.iter().find(|device| device.take_back(is_used))
        });
        let place = place.ok_or_else(|| NoDevice::Machine.to_string())?;
        place.take(words);
        Ok(())
    }

    /// Reads the device UUIDs that the private accounts of all processes name now.
    fn named(&self) -> Vec<(&Account, Named)> {
        let slots = self.owners.iter().zip(&self.accounts);
        let accounts = slots.filter_map(|(owner, private_account)| {
            let mut bytes = [0; size_of::<PrivateAccount>()];
            private_account
                .as_ref()?
                .read_exact_at(&mut bytes, 0)
                .ok()?;
            Some((owner.as_ref()?, PrivateAccount::devices_in(&bytes)))
        });
        accounts.collect()
    }

    /// Opens the pages that an earlier broker handed out.
    fn open_accounts(&mut self) {
        let registry = registry_of(&self.segments);
        for index in 0..MAX_PROCESSES {
            if let (None, Some(entry)) = (&self.accounts[index], registry.entry(index))
                && let Some(epoch) = entry.live()
            {
                let slot = SlotId {
                    index: index as u16,
                    epoch,
                };
                self.accounts[index] = look(&mut self.looks, &self.owners[index], entry, slot);
            }
        }
    }
}

/// Corrects the table's words of a place by the registry.
pub(super) fn show(device: &Device, uuid: Option<[u64; 2]>) {
    let Some(uuid) = uuid else {
        device.ready.store(0, Ordering::Relaxed);
        return device.key.store(0, Ordering::Relaxed);
    };
    device.key.store(codec::key_of(&uuid), Ordering::Relaxed);
    for (word, value) in device.uuid.iter().zip(uuid) {
        word.store(value, Ordering::Relaxed);
    }
}
