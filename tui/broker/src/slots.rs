//! The broker's decisions: which process gets a slot and a place for its device, and who may read which accounts.

mod accounts;
mod devices;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use shm_layout::broker::{Broker, BrokerError, make_accounts};
use shm_layout::{Identity, MAX_PROCESSES, SlotId, Vouched};

use crate::account::Account;
use crate::look_budget::LookBudget;
use crate::mappings::{Accounts, Mapping, mapping};

/// Slots at the end of the table that are kept for users who have at most [`FEW`].
const RESERVED: usize = 32;
const FEW: usize = 3;

/// The slots of a machine's segments.
pub struct Slots {
    /// Writes the segments' words.
    pub broker: Broker,
    /// The most slots for one user, and for one container that root made.
    per_user: usize,
    /// The account that has each slot.
    owners: Vec<Option<Account>>,
    /// The memory of each one's accounts.
    accounts: Vec<Option<File>>,
    looks: LookBudget,
    /// Descriptors and accounts for the next request, made in advance while no client waits. No process had these file
    /// descriptions before.
    next: (Option<[File; 3]>, Option<(File, u64)>),
}

impl Slots {
    /// Makes the segments of a directory, or finds them again; `given` are descriptors among which the state may be. A launch may
    /// ask for the priority and weight in `launch` at most.
    pub fn open(
        dir: &Path,
        given: Vec<OwnedFd>,
        per_user: usize,
        launch: (i32, u32),
    ) -> Result<Self, BrokerError> {
        let find = |pid, inode, name| match mapping(pid, inode, name) {
            Mapping::At(file) => Some(file),
            Mapping::None | Mapping::Unknown => None,
        };
        Ok(Self {
            broker: Broker::open(dir, given, launch, find)?,
            per_user,
            owners: vec![None; MAX_PROCESSES],
            accounts: std::iter::repeat_with(|| None)
                .take(MAX_PROCESSES)
                .collect(),
            looks: LookBudget::default(),
            next: (None, None),
        })
    }

    /// Prepares the descriptors and accounts for the next request.
    pub fn prepare(&mut self) {
        if self.next.0.is_none() {
            self.next.0 = self.broker.describe(true).ok();
        }
        if self.next.1.is_none() {
            self.next.1 = make_accounts().ok();
        }
    }

    /// Descriptions of the segments for one client, of no other: state, control, identity.
    pub fn descriptions(&mut self, write_state: bool) -> io::Result<[File; 3]> {
        let ready = self.next.0.take_if(|_| write_state);
        ready.map_or_else(|| self.broker.describe(write_state), Ok)
    }

    /// Lists the processes that have slots from an earlier broker. The caller watches each one, or takes its slot back.
    pub fn inherited(&mut self) -> Vec<(SlotId, Identity, Vouched)> {
        let found = self.broker.inherited();
        for (slot, identity, _) in &found {
            self.charge(*slot, Account::User(identity.uid));
            self.begin_inherited(*slot);
        }
        found
    }

    /// Sets the account that an inherited slot counts for.
    pub fn charge(&mut self, slot: SlotId, account: Account) {
        self.owners[usize::from(slot.index)] = Some(account);
    }

    /// Gives a process a slot, and enters its group: the slot, and the group's index + 1. The error is a sentence.
    pub fn assign(
        &mut self,
        account: Account,
        process: (&Identity, &Vouched),
        group: Option<&str>,
    ) -> Result<(SlotId, u32), String> {
        let index = self.room_for(&account)?;
        let made = self.next.1.take().map_or_else(make_accounts, Ok);
        let (memory, inode) = made
            .map_err(|error| format!("the broker cannot make memory for its accounts: {error}"))?;
        let taken = self.broker.take(index, process, group, inode);
        let taken = taken.ok_or_else(|| {
            format!(
                "there is no place for a group {:?}",
                group.unwrap_or_default()
            )
        })?;
        self.owners[index] = Some(account);
        self.accounts[index] = Some(memory);
        Ok(taken)
    }

    /// A free slot for a user, if that user may have one more.
    fn room_for(&self, account: &Account) -> Result<usize, String> {
        let owners = self.owners.iter().flatten();
        let has = owners.filter(|owner| *owner == account).count();
        let free = self.owners.iter().filter(|owner| owner.is_none()).count();
        let turned_away = |why: String| {
            self.broker.turn_away();
            Err(why)
        };
        if has >= self.per_user {
            return turned_away(format!(
                "{account} has {has} slots, and one user may have {}; end some of those programs",
                self.per_user
            ));
        }
        let place = self.owners.iter().position(Option::is_none);
        match place {
            Some(place) if free > RESERVED || has < FEW => Ok(place),
            Some(_) => turned_away(format!(
                "the last {free} of {MAX_PROCESSES} slots are kept for users who have less than {FEW}, and {account} has {has}; \
                 end some programs"
            )),
            None => turned_away(format!(
                "all {MAX_PROCESSES} process slots are taken; end another process and start this one again"
            )),
        }
    }

    /// Forgets a slot that was given back.
    pub fn forget(&mut self, slot: SlotId) {
        if self.broker.leave(slot) {
            self.owners[usize::from(slot.index)] = None;
            self.accounts[usize::from(slot.index)] = None;
        }
    }

    /// Repairs words that tenants overwrote. Returns the slots that claim to be taken and were given to no process.
    pub fn repair(&self) -> Vec<SlotId> {
        self.broker.repair(|index| self.owners[index].is_some())
    }

    /// Returns the accounts of a slot whose process may have unmapped them, and the user account that the slot counts for.
    pub fn may_have_let_go(&self, slot: SlotId) -> Option<(Accounts, &Account)> {
        let accounts = self.broker.may_have_let_go(slot).map(Accounts)?;
        Some((accounts, self.owners[usize::from(slot.index)].as_ref()?))
    }
}
