//! The accounts that are added up under a shared limit.
//!
//! Where one user has the state alone, its marks and words are used. Where a broker serves the machine, tenants may write over
//! those. There the registry names the members, and each one's [private account](crate::layout::private_account) holds its
//! bytes.

use super::{CONTEXT_BYTES, Ledger, outside::Given};
use crate::{
    cached_settings::{GroupReserve, OwnSlot},
    layout::{
        private_account::{PrivateAccount, PrivateAccountEntry},
        state::{DeviceEntry, Slot, State},
    },
    memory::residence_of,
    os::clock,
    protocol::{
        account::Account,
        memory_queue,
        primitive::{AtomicU64, Ordering},
    },
    value::{Phase, SlotId},
};

/// Another member.
enum Other<'a> {
    PrivateAccount(&'a PrivateAccount, SlotId),
    /// Without a broker there is no private account: the words in the shared state count.
    Shown(&'a Slot),
    /// The broker does not answer, so the private account cannot be read.
    Unseen,
}

/// The account assumed for a process whose account cannot be read: it leaves no room, so that nothing is granted.
static UNSEEN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(u64::MAX)];

impl Ledger<'_> {
    /// Walks the accounts of all processes on the device, or of those of one group (index + 1). Each is marked with the reserve
    /// among `groups` that covers it.
    pub(super) fn each_account(
        &self,
        group: Option<u32>,
        groups: &[GroupReserve],
        visit: &mut dyn FnMut(Account<'_>),
    ) {
        let device = usize::from(self.entry.device());
        let Some(own) = self.own_slot.private_account() else {
            let state = self.own_slot.segments().state();
            // The words of a member stand in several cache lines, so those that say nothing are left out. A process counts its reserve
            // before it announces it, so whoever adds up behind its own announcement sees the count, or is seen.
            let has_reserves = self.device.reserves.load(Ordering::Relaxed) != 0;
            return state.each_member(device, group, &mut |slot, entry| {
                let account = match has_reserves {
                    true => entry.account_with_reserve(),
                    false => entry.account(),
                };
                let is_own =
                    |group: &GroupReserve| group.number == slot.group.load(Ordering::Relaxed);
                visit(Account {
                    covered: number_of(groups, is_own),
                    ..account
                });
            });
        };
        let reserve = self.reserve_word().load(Ordering::Relaxed);
        visit(Account {
            reserve,
            ..self.own.shown_to_rivals()
        });
        let named = own.device(usize::from(self.entry.index()));
        let (total, now_ns) = (self.total(), clock::now());
        self.own_slot.each_other(group, &mut |other| match other {
            Other::PrivateAccount(private_account, slot) => {
                let covered = number_of(groups, |group| self.own_slot.is_in(slot, group.number));
                for (entry, reserve) in private_account.with_reserves_on(named) {
                    // ORDER: Acquire, so that the reserve is read before the bytes; a process lowers it behind them.
                    let word = reserve.load(Ordering::Acquire);
                    visit(Account {
                        reserve: self.own_slot.bounded_reserve(slot, word, total, now_ns),
                        covered,
                        ..entry.account()
                    });
                }
            }
            Other::Unseen => visit(Account {
                used: &UNSEEN[0],
                trying: &UNSEEN[1],
                reserve: 0,
                covered: 0,
            }),
            Other::Shown(slot) => {
                let entry = slot.entry_on(device);
                entry.into_iter().for_each(|entry| visit(entry.account()));
            }
        });
    }

    /// Returns true if a process whose mark is set really has promised bytes, by its private account.
    pub(super) fn is_promised(&self) -> bool {
        let Some(own) = self.own_slot.private_account() else {
            return true;
        };
        let named = own.device(usize::from(self.entry.index()));
        let mut promised = false;
        self.own_slot.each_other(None, &mut |other| {
            promised |= match other {
                Other::PrivateAccount(private_account, _) => private_account
                    .on(named)
                    .any(PrivateAccountEntry::is_promised),
                Other::Shown(_) | Other::Unseen => true,
            };
        });
        promised
    }

    /// Returns the bytes that the driver has given on the device, by the accounts of all processes, without
    /// [promised](Ledger::promise) ones. `None` while the driver gives or takes some of them.
    pub(super) fn given_together(&self) -> Option<Given> {
        let promised = self.promised_together()?;
        Some(Given {
            bytes: self.held_together(None).saturating_sub(promised),
            is_certain: promised == 0,
        })
    }

    /// Returns the bytes of processes whose memory is about to return, this one included.
    fn promised_together(&self) -> Option<u64> {
        let promises = &self.device.promises;
        if !memory_queue::is_busy(promises) {
            return Some(0);
        }
        let state = self.own_slot.segments().state();
        let device = usize::from(self.entry.device());
        let marked = state.slots.iter().enumerate().filter(|(index, _)| {
            promises[index / 64].load(Ordering::Relaxed) >> (index % 64) & 1 != 0
        });
        let mut bytes = 0_u64;
        for (_, slot) in marked {
            if matches!(residence_of(slot).phase, Phase::Restoring | Phase::Evicting) {
                return None;
            }
            let entry = slot.entry_on(device);
            bytes = bytes.saturating_add(entry.map_or(0, |entry| entry.account().held()));
        }
        let Some(own) = self.own_slot.private_account() else {
            return Some(bytes);
        };
        // Where there is a broker the marks may be any tenant's.
        let index = usize::from(self.entry.index());
        bytes = if own.is_promised(index) {
            self.own.used()
        } else {
            0
        };
        self.own_slot.each_other(None, &mut |other| {
            if let Other::PrivateAccount(private_account, _) = other {
                let promised = private_account
                    .on(own.device(index))
                    .filter(|entry| entry.is_promised());
                let held = promised.map(|entry| entry.account().held());
                bytes = held.fold(bytes, u64::saturating_add);
            }
        });
        Some(bytes)
    }

    /// Bytes held on the device by all processes, or by those of one group.
    pub(crate) fn held_together(&self, group: Option<u32>) -> u64 {
        let mut held = 0u64;
        self.each_account(group, &[], &mut |account| {
            held = held.saturating_add(account.held());
        });
        held
    }
}

/// Returns the number, from 1 on, of the reserve of the group that is looked for; 0 for none.
fn number_of(groups: &[GroupReserve], is_it: impl Fn(&GroupReserve) -> bool) -> usize {
    let has_members = |group: &GroupReserve| group.number != 0;
    let found = groups
        .iter()
        .position(|group| has_members(group) && is_it(group));
    found.map_or(0, |index| index + 1)
}

impl OwnSlot {
    /// Returns true if a slot is in a group (index + 1), as the broker recorded it.
    fn is_in(&self, slot: SlotId, group: u32) -> bool {
        let registry = self.segments().registry();
        let group = registry.and_then(|registry| registry.group(group));
        group.is_some_and(|group| group.has(usize::from(slot.index)))
    }

    /// Maps the accounts of the processes that share a limit with this one. An allocation then need not ask the broker for
    /// them, and they stay readable if the broker dies.
    pub(crate) fn meet(&self) {
        if let Some(group) = self.shares_with() {
            self.each_other(group, &mut |_| ());
        }
    }

    /// Returns the most bytes that other processes can have on the machine's devices, contexts included: by accounts that no other
    /// tenant can write, and at most `most` on each device. `None` where there is no broker, or an account cannot be read.
    pub(crate) fn most_of_others(&self, most: u64) -> Option<u64> {
        let mut devices: Vec<([u64; 2], u64)> = self
            .segments()
            .registry()?
            .devices
            .iter()
            .filter_map(|device| Some((device.uuid()?, 0)))
            .collect();
        let mut are_known = true;
        self.each_other(None, &mut |other| match other {
            Other::PrivateAccount(private_account, _) => {
                for (device, held) in &mut devices {
                    let entries = private_account.on(*device);
                    let each = entries.map(|entry| entry.account().held());
                    *held = each.fold(*held, |sum, own| {
                        sum.saturating_add(own).saturating_add(CONTEXT_BYTES)
                    });
                }
            }
            Other::Shown(_) | Other::Unseen => are_known = false,
        });
        let all = devices.into_iter().map(|(_, held)| held.min(most));
        are_known.then(|| all.fold(0, u64::saturating_add))
    }

    /// Walks the other members that may hold something, where there is a broker.
    fn each_other(&self, group: Option<u32>, visit: &mut dyn FnMut(Other<'_>)) {
        let segments = self.segments();
        let Some((registry, account_map)) = segments.registry().zip(segments.account_map()) else {
            return;
        };
        let others = || registry.members(group).filter(|slot| *slot != self.slot());
        let missing: Vec<SlotId> = others()
            .filter(|slot| account_map.of(*slot).is_none())
            .collect();
        if !missing.is_empty() {
            account_map.fetch(segments.dir(), &missing);
        }
        for slot in others() {
            visit(match account_map.of(slot) {
                Some(private_account) => Other::PrivateAccount(private_account, slot),
                None if account_map.are_withheld() => Other::Unseen,
                None => Other::Shown(&segments.state().slots[usize::from(slot.index)]),
            });
        }
    }
}

impl Slot {
    /// Returns the process's entry on a device.
    fn entry_on(&self, device: usize) -> Option<&DeviceEntry> {
        let entry = self.entry_of_device.get(device)?.load(Ordering::Relaxed);
        self.entries.get(usize::from(entry).checked_sub(1)?)
    }
}

impl State {
    /// Walks the processes on a device: all of them, or those of one group (index + 1).
    pub(crate) fn each_member(
        &self,
        device: usize,
        group: Option<u32>,
        visit: &mut dyn FnMut(&Slot, &DeviceEntry),
    ) {
        let Some(members) = self.devices.get(device).map(|device| &device.members) else {
            return;
        };
        for (word_index, word) in members.iter().enumerate() {
            // ORDER: Acquire pairs with the Release in add_device; the fence between our announcement and this look
            // makes a rival's bit as visible as its announcement.
            let mut bits = word.load(Ordering::Acquire);
            while bits != 0 {
                let slot = &self.slots[word_index * 64 + bits.trailing_zeros() as usize];
                bits &= bits - 1;
                if group.is_some_and(|group| slot.group.load(Ordering::Relaxed) != group) {
                    continue;
                }
                if let Some(entry) = slot.entry_on(device) {
                    visit(slot, entry);
                }
            }
        }
    }
}
