//! The memory of each process's accounts (`private_account`). It is made for one life of a slot and handed to that process to
//! write. Once the process has it mapped, all others may read it. And the quotas that settings and rules give a process; no tenant
//! can write these.

use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{Broker, clock, registry_of};
use crate::{
    broker::socket::{SEALS, has_seals},
    layout::{
        codec::{self, EVERY_DEVICE},
        private_account::{self, PrivateAccount},
        registry::RegistryEntry,
    },
    segment::identity::{self, decode_vouched},
    value::{DEVICES_PER_PROCESS, QuotaValue, SlotId, Timed, Uuid},
};

/// Name of the memory, as `/proc` shows it.
pub const ACCOUNTS: &str = private_account::NAME;

/// The seals that the memory is made with. The last ones come when its process has it mapped.
const FIRST_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Makes memory for a process's accounts, and returns its inode too.
pub fn make_accounts() -> io::Result<(File, u64)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = File::from(memfd_create(ACCOUNTS, flags)?);
    memory.set_permissions(Permissions::from_mode(0o600))?;
    ftruncate(&memory, private_account::SIZE)?;
    fcntl_add_seals(&memory, FIRST_SEALS)?;
    let inode = memory.metadata()?.ino();
    Ok((memory, inode))
}

/// Returns the devices that a process's accounts name.
pub fn devices_in(memory: &File) -> io::Result<impl Iterator<Item = Uuid> + use<>> {
    let mut bytes = [0; size_of::<PrivateAccount>()];
    memory.read_exact_at(&mut bytes, 0)?;
    let named = PrivateAccount::devices_in(&bytes).into_iter();
    Ok(named.map(|[low, high]| codec::uuid_of(low, high)))
}

impl Broker {
    /// Marks that the process of a slot has mapped its accounts. No other process can write them any more, and they count.
    pub fn begin(&self, slot: SlotId, memory: &File) {
        if fcntl_add_seals(memory, SEALS | SealFlags::FUTURE_WRITE).is_err() {
            // A kernel before 5.1. There, as without a read-only mount, root in a container may write to the files that it
            // gets for reading.
            let _ = fcntl_add_seals(memory, SEALS);
        }
        if let Some(entry) = self.entry(slot) {
            entry.begin(slot.epoch);
        }
    }

    /// Takes the mark back, because the process of a slot has its accounts no longer mapped. They are not counted, or all others
    /// would ask for them again and again.
    pub fn withdraw(&self, slot: SlotId) {
        if let Some(entry) = self.entry(slot) {
            entry.withdraw(slot.epoch);
        }
    }

    /// Returns the pid of a slot's process and the inode of its accounts. `None` if this life of the slot has ended.
    pub fn has_accounts(&self, slot: SlotId) -> Option<(u32, u64)> {
        let entry = self.entry(slot)?;
        let live = entry.live() == Some(slot.epoch);
        let (_, vouched) = decode_vouched(&entry.read().filter(|_| live)?);
        Some((vouched.pid, entry.account_inode()))
    }

    /// Returns true if the accounts of a slot count.
    pub fn has_begun(&self, slot: SlotId) -> bool {
        self.entry(slot).and_then(RegistryEntry::begun) == Some(slot.epoch)
    }

    fn entry(&self, slot: SlotId) -> Option<&RegistryEntry> {
        registry_of(&self.segments).entry(usize::from(slot.index))
    }
}

/// Returns true if this is memory that a broker made for a process's accounts: a tenant can map any other file of root's under
/// any name.
pub fn are_accounts(memory: &File) -> bool {
    has_seals(memory, FIRST_SEALS, private_account::SIZE)
}

impl Broker {
    /// Returns the quotas that settings and rules give a process on one device or on each, now and after temporary settings
    /// end. `None` where they cannot be read.
    pub fn quotas_left(&self, slot: SlotId, device: Option<u8>) -> Option<Vec<QuotaValue>> {
        let (segments, now) = (&self.segments, clock::now());
        let settings = segments.control().slot_settings(slot).unwrap_or_default();
        let rule = segments
            .control()
            .rule_limits(&identity::traits(segments, slot)?)?;
        let of_rule = [rule.memory.unwrap_or_default()];
        let said = |setting: &Timed<QuotaValue>| {
            [setting.at(now), setting.lasting()].map(Option::unwrap_or_default)
        };
        let for_all = said(&settings.quotas[EVERY_DEVICE]);
        let mut left = Vec::new();
        for entry in 0..DEVICES_PER_PROCESS {
            if device.is_some_and(|device| usize::from(device) != entry) {
                continue;
            }
            let own = said(&settings.quotas[entry]);
            // Each says something, or leaves it to the next.
            for level in [&own[..], &for_all, &of_rule] {
                left.extend_from_slice(level);
                if !level.contains(&QuotaValue::Inherit) {
                    break;
                }
            }
        }
        left.retain(|value| *value != QuotaValue::Inherit);
        left.dedup();
        Some(left)
    }
}
