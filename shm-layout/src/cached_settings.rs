//! The settings of a registered process: resolved from the control segment, cached, and refreshed when the generation changes.
//!
//! The hot path compares one generation and reads the process's own memory. A record that cannot be read completely leaves the
//! earlier values in force.

mod refresh;
mod resolve;
mod restore;

pub(crate) use resolve::{
    CachedLimits, HoldBackTimer, LaunchQuota, Limits, Shares, UntrustedFallback, device_limit,
    launch_policy, resolve_policy, resolve_quota, resolve_share,
};

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{
    layout::{
        codec::{self, DeviceSettings, GroupSettings, NameWords, SlotSettings},
        private_account::PrivateAccount,
        state::Slot,
    },
    os::{clock, futex},
    protocol::primitive::{AtomicU32, AtomicU64, Ordering},
    segment::{Segments, account_map::OwnAccount, tables},
    value::{
        CardSlice, DEVICES_PER_PROCESS, LaunchShare, LockPolicy, Order, Pace, SettingValues, Share,
        SlotId, Source, TraceOrder, Traits, Uuid,
    },
};

/// The reserve of a group that this process is not in.
pub(crate) struct GroupReserve {
    pub(crate) bytes: u64,
    /// The group's index + 1, as slots hold it; 0 for a group without members.
    pub(crate) number: u32,
}

/// A process's slot in the segments, with the settings cached for it.
pub(crate) struct OwnSlot {
    segments: Segments,
    slot: SlotId,
    /// Our group's index + 1; 0 for none.
    group: u32,
    group_name: Option<NameWords>,
    launch: LaunchShare,
    launch_policy: Option<(LockPolicy, Source)>,
    /// Our accounts, where others may write those that we show.
    private_account: Option<OwnAccount>,
    /// On the heap from the start: a program may have a stack of 64 KiB.
    cache: Box<Cache>,
}

/// The cache of a seat.
struct Cache {
    /// The generation the numbers below are of.
    generation: AtomicU64,
    /// Time when a temporary setting ends; 0 is never.
    deadline: AtomicU64,
    limits: [CachedLimits; DEVICES_PER_PROCESS],
    known: Mutex<LastRead>,
    own: Mutex<[Option<OwnEntry>; DEVICES_PER_PROCESS]>,
    shares: Mutex<Shares>,
    /// 1 while we are paused or capped: the lock's fast path asks only this.
    held_back: AtomicU64,
    /// The traits that rules match. They do not change in the life of a slot.
    traits: OnceLock<Traits>,
    /// Our weight and cap: `Pace`.
    pace: AtomicU64,
    /// 1 where an operator has set a reserve for a group, or a broker serves the machine and a rule or an operator has set one for
    /// some process.
    reserves: AtomicU64,
}

/// A device entry in a process's own slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    pub(crate) index: u8,
    pub(crate) device: u8,
}

impl Entry {
    /// Returns the index among the slot's 16 entries.
    pub fn index(self) -> u8 {
        self.index
    }

    /// The device's index in the segment: locks on several devices are taken in this order.
    pub fn device(self) -> u8 {
        self.device
    }
}

/// One of the process's device entries, as it was entered.
pub(crate) struct OwnEntry {
    pub(crate) device: usize,
    pub(crate) ordinal: u32,
    pub(crate) launch: LaunchQuota,
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) total_bytes: u64,
    pub(crate) flags: u32,
}

impl OwnEntry {
    fn known(&self) -> tables::DeviceIdentity<'_> {
        tables::DeviceIdentity {
            uuid: self.uuid,
            name: &self.name,
            total_bytes: self.total_bytes,
            flags: self.flags,
        }
    }
}

/// The last good reading of the records.
#[derive(Default)]
pub(crate) struct LastRead {
    slot: SlotSettings,
    group: GroupSettings,
    /// The other groups for which a reserve is set.
    reserving: Vec<GroupSettings>,
    /// Values of the first rule that matches.
    rule: SettingValues,
    common: DeviceSettings,
    devices: [DeviceSettings; DEVICES_PER_PROCESS],
}

impl LastRead {
    /// Returns the operator's order for a trace.
    pub(crate) fn trace_order(&self) -> Option<TraceOrder> {
        self.slot.trace
    }
}

impl Cache {
    fn new() -> Box<Cache> {
        Box::new(Cache {
            generation: AtomicU64::new(u64::MAX),
            deadline: AtomicU64::new(0),
            limits: Default::default(),
            known: Mutex::default(),
            own: Mutex::default(),
            shares: Mutex::default(),
            held_back: AtomicU64::new(0),
            traits: OnceLock::new(),
            pace: AtomicU64::new(100),
            reserves: AtomicU64::new(0),
        })
    }
}

impl OwnSlot {
    /// The seat of a slot that was claimed and filled.
    pub(crate) fn new(
        segments: &Segments,
        slot: SlotId,
        group_name: Option<NameWords>,
        launch_policy: Option<(LockPolicy, Source)>,
        private_account: Option<OwnAccount>,
    ) -> OwnSlot {
        let words = &segments.state().slots[usize::from(slot.index)];
        let group = words.group.load(Ordering::Relaxed);
        OwnSlot {
            segments: segments.clone(),
            slot,
            group,
            group_name: group_name.filter(|_| group != 0),
            launch: segments.launch_of(words),
            launch_policy,
            private_account,
            cache: Cache::new(),
        }
    }

    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }

    #[inline]
    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    #[inline]
    pub(crate) fn words(&self) -> &Slot {
        &self.segments.state().slots[usize::from(self.slot.index)]
    }

    /// Our accounts, where others may write those that we show.
    #[inline(always)]
    pub(crate) fn private_account(&self) -> Option<&PrivateAccount> {
        self.private_account.as_ref().map(OwnAccount::words)
    }

    /// Returns true if what operators have set up to an edit may reserve memory: for groups, or for processes where a broker serves
    /// the machine.
    #[inline(always)]
    pub(crate) fn allows_reserves(&self, generation: u64) -> bool {
        let is_known = self.cache.generation.load(Ordering::Relaxed) == generation;
        !is_known || self.cache.reserves.load(Ordering::Relaxed) != 0
    }

    /// Returns the limit that this process shares: with all processes on a device (`None`), or with those of its group (index +
    /// 1).
    pub(crate) fn shares_with(&self) -> Option<Option<u32>> {
        if self.cache.reserves.load(Ordering::Relaxed) != 0 {
            return Some(None);
        }
        let mut shared = None;
        for cached in &self.cache.limits {
            let limits = cached.load();
            // An entry of no device has no memory.
            if limits.are_shared() && cached.total.load(Ordering::Relaxed) != 0 {
                match limits.device {
                    u64::MAX => shared = shared.or(Some(Some(self.group))),
                    _ => return Some(None),
                }
            }
        }
        shared
    }

    /// Returns the reserves on a device of the groups that this process is not in.
    pub(crate) fn group_reserves(&self, total: u64) -> Vec<GroupReserve> {
        if self.cache.reserves.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let (known, now) = (self.known(), clock::now());
        let reserving = known.reserving.iter();
        let reserves = reserving.map(|group| GroupReserve {
            bytes: group.reserve_at(now, total),
            number: match self.segments().registry() {
                Some(registry) => registry.group_named(&group.name),
                None => self.segments().state().group_named(&group.name),
            },
        });
        reserves.filter(|reserve| reserve.bytes != 0).collect()
    }

    /// Returns the reserve on a device of this process's group.
    pub(crate) fn own_group_reserve(&self, total: u64) -> u64 {
        match self.cache.reserves.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.known().group.reserve_at(clock::now(), total),
        }
    }

    /// Our group's index + 1; 0 for none.
    pub(crate) fn group(&self) -> u32 {
        self.group
    }

    /// Returns this process's entry on a device, or else the index of a free entry.
    pub(crate) fn entry_on(&self, uuid: &Uuid) -> Result<Entry, Option<usize>> {
        let own = self.own();
        let known = own.iter().enumerate().find_map(|(index, own)| {
            let own = own.as_ref().filter(|own| own.uuid == *uuid)?;
            let (index, device) = (index as u8, own.device as u8);
            Some(Entry { index, device })
        });
        known.ok_or_else(|| own.iter().position(Option::is_none))
    }

    /// Keeps a copy of one of our entries, because other tenants may write over the one in the segment.
    pub(crate) fn enter(&self, index: usize, own: OwnEntry) {
        if let Some(limits) = self.cache.limits.get(index) {
            limits.total.store(own.total_bytes, Ordering::Relaxed);
        }
        if let Some(place) = self.own().get_mut(index) {
            *place = Some(own);
        }
    }

    fn own(&self) -> MutexGuard<'_, [Option<OwnEntry>; DEVICES_PER_PROCESS]> {
        let own = &self.cache.own;
        own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of this process that are evicted, over all its devices.
    pub(crate) fn evicted_bytes(&self) -> u64 {
        let known = self.cache.limits.iter();
        known
            .map(|known| known.evicted.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add)
    }

    /// Returns the memory of the largest device that this process uses.
    pub(crate) fn largest_device(&self) -> u64 {
        let known = self.cache.limits.iter();
        let totals = known.map(|known| known.total.load(Ordering::Relaxed));
        totals.max().unwrap_or(0)
    }

    /// Returns the cached limits of a device. They are up to date after [`look_at`](Self::look_at).
    pub(crate) fn cached_limits(&self, entry: Entry) -> &CachedLimits {
        &self.cache.limits[usize::from(entry.index()) % DEVICES_PER_PROCESS]
    }

    /// Returns the lock policy in force for this process on one device, and its source; `overlap` has its number.
    pub(crate) fn policy(&self, entry: Entry) -> (LockPolicy, Source) {
        let known = self.known();
        let device = known.devices.get(usize::from(entry.index()));
        let now = clock::now();
        let (mut policy, source) = resolve_policy(
            device.and_then(|device| device.policy.at(now)),
            known.common.policy.at(now),
            self.launch_policy,
        );
        let slice = self.cached_limits(entry).card_slice.load(Ordering::Relaxed);
        let lasts = self.is_mps(entry) || CardSlice::of(slice).is_long();
        policy.kind = policy.kind.settled(policy.order, lasts);
        (policy, source)
    }

    /// Returns true if the contexts on a device were reported to be made by an MPS server.
    pub(crate) fn is_mps(&self, entry: Entry) -> bool {
        let said = self.cached_limits(entry).mps.load(Ordering::Relaxed);
        codec::mps_of(said) == Some(true)
    }

    /// Returns true if a device is overcommitted.
    pub(crate) fn overcommits(&self, entry: Entry) -> bool {
        let (known, now) = (self.known(), clock::now());
        let device = known.devices.get(usize::from(entry.index()));
        device
            .and_then(|device| device.memory.overcommit.at(now))
            .or(known.common.memory.overcommit.at(now))
            .unwrap_or(false)
    }

    /// Returns this process's share.
    pub(crate) fn share(&self) -> Share {
        let (known, now) = (self.known(), clock::now());
        // An entry without a device holds nothing.
        let entries = known.devices.iter().zip(&self.words().entries);
        let held = entries.filter(|(_, words)| words.used.load(Ordering::Relaxed) != 0);
        resolve_share(
            &self.launch,
            Some(&known.slot.share),
            Some(&known.group),
            &known.rule,
            held.map(|(device, _)| device),
            &known.common,
            now,
        )
    }

    /// The newest control generation.
    #[inline]
    pub(crate) fn control_generation(&self) -> u64 {
        self.segments().control().generation()
    }

    /// Returns the end of the temporary setting that ends next. The keeper looks again then.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.look();
        match self.cache.deadline.load(Ordering::Relaxed) {
            0 => None,
            deadline => Some(deadline),
        }
    }

    fn look(&self) {
        self.look_at(self.segments().control().generation_word());
    }

    /// Reads the records again if the control segment's generation moved.
    #[inline(always)]
    pub(crate) fn look_at(&self, generation: &AtomicU64) {
        // ORDER: pairs with the Release in edit; the records of that generation are visible.
        let generation = generation.load(Ordering::Acquire);
        // ORDER: Acquire pairs with the Release in refresh; the numbers are of that generation or newer.
        let seen = self.cache.generation.load(Ordering::Acquire);
        if generation != seen || self.cache.deadline.load(Ordering::Relaxed) != 0 {
            self.look_closely(generation == seen);
        }
    }

    #[cold]
    #[inline(never)]
    fn look_closely(&self, same_generation: bool) {
        let deadline = self.cache.deadline.load(Ordering::Relaxed);
        let over = deadline != 0 && clock::now() >= deadline;
        if over || !same_generation {
            self.refresh();
        }
    }

    /// The readings, refreshed if the generation moved.
    pub(crate) fn known(&self) -> MutexGuard<'_, LastRead> {
        self.look();
        self.last_read()
    }

    fn last_read(&self) -> MutexGuard<'_, LastRead> {
        let known = &self.cache.known;
        known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Our weight and cap.
    pub(crate) fn pace(&self) -> Pace {
        self.look();
        let words = self.cache.pace.load(Ordering::Relaxed);
        Pace {
            weight: words as u32,
            cap: Some((words >> 32) as u32).filter(|cap| *cap != 0),
        }
    }

    /// The order of a device's queue.
    pub(crate) fn order(&self, entry: Entry) -> Order {
        self.look();
        let known = self.cached_limits(entry).order.load(Ordering::Relaxed);
        // Stored plus 1: zero is an entry that was not resolved yet.
        let code = known.checked_sub(1);
        code.and_then(Order::of_code).unwrap_or_default()
    }

    /// Other slots' shares.
    pub(crate) fn shares(&self) -> MutexGuard<'_, Shares> {
        self.cache
            .shares
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a pause or a cap may keep this process from the lock.
    pub(crate) fn may_be_held_back(&self) -> bool {
        self.look();
        self.cache.held_back.load(Ordering::Relaxed) != 0
    }
}

/// The futex word that every edit bumps and wakes (shared futex, not private).
pub fn control_bell(segments: &Segments) -> &AtomicU32 {
    &segments.control().bell
}

/// Sleeps until the bell is no longer `seen`, or `timeout_ns` passed, or a signal came.
pub fn wait_bell(segments: &Segments, seen: u32, timeout_ns: u64) {
    futex::wait(control_bell(segments), seen, timeout_ns);
}
