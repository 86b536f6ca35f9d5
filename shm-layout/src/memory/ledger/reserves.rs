//! The reserves on a device: bytes that no process but one can take.
//!
//! A reserve is a word beside the account of its process, and it ends with that account. Each process adds the reserves of others up
//! where it adds their accounts up ([`account`](crate::protocol::account)), so they hold without a daemon. An evicted process keeps its
//! reserve: the room that it had is free and no other process gets it, so its memory can return at any time.
//!
//! The operator may set a reserve for a group, which its members have together (`account`). It counts from the edit on, also while the
//! group has no members. Where others hold too much at that time, it fills up as they give memory back.
//!
//! Where a broker serves the machine, a tenant can write what it likes into its own account. There a reserve counts for at most what
//! a rule or an operator has set for its process, and one that a launch asks for does not count.

use super::{Ledger, Limits};
use crate::{
    cached_settings::{GroupReserve, OwnSlot},
    layout::state::{Device, DeviceEntry},
    protocol::{
        account::{self, ATTEMPT, SharedLimit, granted},
        primitive::{AtomicU64, Ordering},
    },
    value::{Denial, Share, SlotId, Source},
};

impl<'r> Ledger<'r> {
    /// Returns the reserves of the groups that this process is not in.
    pub(crate) fn group_reserves(&self) -> Vec<GroupReserve> {
        self.own_slot.group_reserves(self.total())
    }

    /// Returns by how many bytes each of `groups` holds or has reserved more than its reserve.
    pub(crate) fn beyond_reserves(&self, groups: &[GroupReserve]) -> Vec<u64> {
        let mut claimed = vec![0u64; groups.len()];
        self.each_account(None, groups, &mut |account| {
            if let Some(sum) = claimed.get_mut(account.covered.wrapping_sub(1)) {
                *sum = sum.saturating_add(account.claimed());
            }
        });
        let pairs = claimed.into_iter().zip(groups);
        pairs
            .map(|(claimed, group)| claimed.saturating_sub(group.bytes))
            .collect()
    }

    /// Returns true if memory of this process's group can make room for others: the group has more than its reserve.
    pub(crate) fn is_beyond_group_reserve(&self) -> bool {
        let reserve = self.own_group_reserve();
        reserve == 0 || self.claimed_in_group() > reserve
    }

    fn own_group_reserve(&self) -> u64 {
        self.own_slot.own_group_reserve(self.total())
    }

    /// Returns the bytes of the device that the members of this process's group hold or have reserved.
    fn claimed_in_group(&self) -> u64 {
        let mut claimed = 0u64;
        self.each_account(Some(self.own_slot.group()), &[], &mut |account| {
            claimed = claimed.saturating_add(account.claimed());
        });
        claimed
    }

    /// Returns the bytes of the device that are reserved for this process.
    pub fn reserved(&self) -> u64 {
        granted(self.reserve_word().load(Ordering::Relaxed))
    }

    /// Returns true if the process, or its group, holds so little that it gets `bytes` from its reserve.
    pub(crate) fn is_reserved(&self, bytes: u64) -> bool {
        self.used().saturating_add(bytes) <= self.reserved()
            || match self.own_group_reserve() {
                0 => false,
                reserve => self.claimed_in_group().saturating_add(self.growth(bytes)) <= reserve,
            }
    }

    /// Returns by how many bytes what the process holds or has reserved grows if it gets `bytes`.
    pub(crate) fn growth(&self, bytes: u64) -> u64 {
        account::growth(self.used(), self.reserved(), bytes)
    }

    /// Returns true if a process may have a reserve on the device.
    #[inline(always)]
    pub fn has_reserves(&self) -> bool {
        // ORDER: SeqCst, behind the bytes of this process; pairs with the one in count_reserve, or with the fence in change_reserve:
        // this process sees that there is a reserve, or the edit that allows one, or the other process sees the bytes.
        if self.own.kept.is_none() && self.device.reserves.load(Ordering::SeqCst) != 0 {
            return true;
        }
        // Tenants can write the count, but not what operators have set.
        let edited = self.generation.load(Ordering::SeqCst);
        self.own_slot.allows_reserves(edited)
    }

    /// Returns true if the bytes outside the accounts count now, and this process has not measured them lately.
    pub fn wants_measurement(&self) -> bool {
        self.has_reserves() && !self.is_measured_lately()
    }

    /// Makes the reserve what the settings in force say, if the device has room for it. Returns its bytes, or the limit that has no
    /// room; the reserve then is what it was. One thread at a time may call this, regularly.
    pub fn follow_reserve(&self) -> Result<u64, Denial> {
        let (word, limits) = (self.reserve_word(), self.limits());
        let wanted = self
            .own_slot
            .reserve_of(&self.own_slot.share(), self.total());
        let wanted = wanted.min(limits.quota);
        let before = granted(word.load(Ordering::Relaxed));
        if wanted == before {
            return Ok(wanted);
        }
        if before == 0 {
            self.device.count_reserve();
        }
        let changed = self.change_reserve(word, wanted, before, &limits);
        let now = granted(word.load(Ordering::Relaxed));
        self.words.reserve.store(now, Ordering::Relaxed);
        if now == 0 {
            self.device.uncount_reserve();
        }
        if now < before {
            self.device.came_back();
        }
        changed.map(|()| wanted)
    }

    fn change_reserve(
        &self,
        word: &AtomicU64,
        wanted: u64,
        before: u64,
        limits: &Limits,
    ) -> Result<(), Denial> {
        let card = self.card(0);
        self.under_shared_limits(wanted - before.min(wanted), limits, card, |shared| {
            account::change_reserve(word, self.own, wanted, shared)
        })
    }

    /// The word that counts in the sums of others.
    pub(super) fn reserve_word(&self) -> &'r AtomicU64 {
        match self.own_slot.private_account() {
            Some(private_account) => private_account.reserve(usize::from(self.entry.index())),
            None => &self.words.reserve,
        }
    }

    /// Returns the bytes of the device that processes hold or have reserved, or that other groups than this process's have.
    pub(crate) fn claimed_together(&self) -> u64 {
        let groups = self.group_reserves();
        let reserves: Vec<u64> = groups.iter().map(|group| group.bytes).collect();
        let (claimed, _) = account::add_up(&SharedLimit {
            bytes: u64::MAX,
            walk: &|visit| self.each_account(None, &groups, visit),
            groups: &reserves,
        });
        claimed
    }
}

impl OwnSlot {
    /// Returns the reserve that a process with this share may have on a device.
    fn reserve_of(&self, share: &Share, total: u64) -> u64 {
        let counts = !self.segments().is_brokered()
            || matches!(share.sources.reserve, Source::Operator | Source::Rule);
        match counts {
            true => share.reserve.of_device(total),
            false => 0,
        }
    }

    /// Bounds the word of another process's reserve, which that process can write, by what it may have on a device.
    pub(super) fn bounded_reserve(&self, id: SlotId, word: u64, total: u64, now_ns: u64) -> u64 {
        if word == 0 {
            return 0;
        }
        let slot = &self.segments().state().slots[usize::from(id.index)];
        let share = self.shares().share_of(self.segments(), id, slot, now_ns);
        let most = self.reserve_of(&share, total);
        (word & !ATTEMPT).min(most) | word & ATTEMPT
    }
}

impl Device {
    /// Counts a process that is about to have a reserve.
    fn count_reserve(&self) {
        // ORDER: SeqCst, before the reserve is announced; pairs with the one in has_reserves.
        self.reserves.fetch_add(1, Ordering::SeqCst);
    }

    fn uncount_reserve(&self) {
        let less = |count: u64| count.checked_sub(1);
        let _ = self
            .reserves
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, less);
    }

    /// Ends the reserve of a process that is gone. If the caller dies in between, allocations ask in vain what is reserved.
    pub(crate) fn end_reserve(&self, entry: &DeviceEntry) {
        if entry.reserve.swap(0, Ordering::SeqCst) != 0 {
            self.uncount_reserve();
        }
    }
}
