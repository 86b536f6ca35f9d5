//! The devices and the groups, from the processes that were read, and a process's entry on a device.

use std::borrow::Borrow;

use super::{
    super::{DeviceView, GroupView, LockState, LockView, ProcessDeviceView, ProcessView},
    Launch, Reading,
};
use crate::{
    cached_settings,
    layout::{
        codec::{self, DeviceSettings},
        state::{Device, DeviceEntry},
    },
    lock,
    memory::queue,
    protocol::{
        primitive::Ordering,
        turn::{BITMAP, who},
    },
    value::{CardSlice, EvictAfter, Histogram, SlotId, Uuid, is_pick_held},
};

impl Reading<'_> {
    pub(super) fn device<P, E>(&self, index: usize, processes: &[P]) -> Option<DeviceView>
    where
        P: Borrow<ProcessView<E>>,
        E: Borrow<ProcessDeviceView>,
    {
        let (device, uuid) = self.segments.device(index)?;
        let settings = self.devices.get(index).copied().unwrap_or_default();
        let total_bytes = device.total_bytes.load(Ordering::Relaxed);
        // Those with a bit alone: what processes have of devices lies far apart.
        let of = |bits: [u64; BITMAP]| {
            let has = move |slot: SlotId| {
                let (at, bit) = slot.bit();
                bits.get(at).is_some_and(|word| word & bit != 0)
            };
            let there = processes.iter().map(P::borrow);
            let there = there.filter(move |process| has(process.slot));
            there.filter_map(move |process| Some((process.slot, entry_of(process, index)?)))
        };
        let mut waiters: Vec<(u64, SlotId)> = of(device.turn().waiting())
            .map(|(slot, entry)| (entry.lock.since_ns, slot))
            .collect();
        waiters.sort_unstable();
        let line = std::array::from_fn(|at| device.line[at].load(Ordering::Relaxed));
        let mut memory_line: Vec<(u64, SlotId)> = of(line)
            .filter_map(|(slot, entry)| Some((entry.memory_wait?.ticket, slot)))
            .collect();
        memory_line.sort_unstable();
        let owner = SlotId::from_word(who(device.turn().owner()));
        let picks = device
            .picks
            .iter()
            .filter(|until| is_pick_held(until.load(Ordering::Relaxed), self.now_ns))
            .count();
        let mut handoff_times = Histogram::default();
        device.handoff_times.read(&mut handoff_times);
        let name: [u64; 8] = std::array::from_fn(|at| device.name[at].load(Ordering::Relaxed));
        Some(DeviceView {
            index: index as u8,
            uuid,
            name: codec::text_of(&name),
            total_bytes,
            flags: device.flags.load(Ordering::Relaxed),
            owner_since_ns: owner.map_or(0, |_| device.owner_since.load(Ordering::Relaxed)),
            owner,
            waiters: waiters.into_iter().map(|(_, slot)| slot).collect(),
            memory_line: memory_line.into_iter().map(|(_, slot)| slot).collect(),
            policy: cached_settings::resolve_policy(
                settings.policy.at(self.now_ns),
                self.common.policy.at(self.now_ns),
                None,
            ),
            policy_until_ns: self.policy_reverts(&settings),
            limit: cached_settings::device_limit(&settings, &self.common, total_bytes),
            evict_after: settings
                .memory
                .evict_after
                .at(self.now_ns)
                .or(self.common.memory.evict_after.at(self.now_ns))
                .and_then(EvictAfter::ns),
            overcommit: settings
                .memory
                .overcommit
                .at(self.now_ns)
                .or(self.common.memory.overcommit.at(self.now_ns))
                .unwrap_or(false),
            crowded_ns: device.crowded_ns.load(Ordering::Relaxed),
            handoffs: device.handoffs.load(Ordering::Relaxed),
            forced: device.forced.load(Ordering::Relaxed),
            takeovers: device.takeovers.load(Ordering::Relaxed),
            last_handoff_ns: device.last_handoff_ns.load(Ordering::Relaxed),
            handoff_times,
            violations: device.violations.load(Ordering::Relaxed),
            picks: picks as u32,
        })
    }

    /// Returns the time when the policy in force on a device reverts by itself: the device's own policy, or else the common
    /// one.
    fn policy_reverts(&self, settings: &DeviceSettings) -> Option<u64> {
        let own = settings.policy.at(self.now_ns).is_some();
        let policy = if own {
            &settings.policy
        } else {
            &self.common.policy
        };
        policy.reverts(self.now_ns)
    }

    /// Groups that a process named, and groups that the operator defined.
    pub(super) fn groups<P: Borrow<ProcessView<E>>, E>(&self, processes: &[P]) -> Vec<GroupView> {
        let control = self.segments.control();
        let mut names: Vec<codec::NameWords> = self
            .segments
            .state()
            .groups
            .iter()
            .filter_map(|group| group.name())
            .collect();
        for settings in control.defined_groups().flatten() {
            if !names.contains(&settings.name) {
                names.push(settings.name);
            }
        }
        let view = |name: codec::NameWords| {
            let settings = control.group_settings(&name).unwrap_or_default();
            let text = codec::text_of(&name);
            let members = processes
                .iter()
                .map(P::borrow)
                .filter(|process| process.group.as_ref() == Some(&text));
            GroupView {
                members: members.map(|process| process.slot).collect(),
                name: text,
                defined: settings.present,
                memory: settings.set.memory.at(self.now_ns).unwrap_or_default(),
                weight: settings.set.weight.at(self.now_ns),
                cap: settings.set.cap.at(self.now_ns),
                reserve: settings.set.reserve.at(self.now_ns),
                until_ns: settings.set.reverts(self.now_ns).min(),
            }
        };
        let mut groups: Vec<GroupView> = names.into_iter().map(view).collect();
        groups.retain(|group| group.defined || !group.members.is_empty());
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }
}

/// Finds a process's view of the device with this index.
fn entry_of<E: Borrow<ProcessDeviceView>>(
    process: &ProcessView<E>,
    index: usize,
) -> Option<&ProcessDeviceView> {
    let mut entries = process.devices.iter().map(E::borrow);
    entries.find(|entry| usize::from(entry.device) == index)
}

/// The device that an entry is about.
pub(super) struct About<'s> {
    index: usize,
    device: &'s Device,
    uuid: Uuid,
}

impl<'s> Reading<'s> {
    /// The device that an entry is about, if it is in use.
    pub(super) fn device_of(&self, words: &DeviceEntry) -> Option<About<'s>> {
        // ORDER: pairs with the Release in add_device.
        let index = (words.device.load(Ordering::Acquire) as usize).checked_sub(1)?;
        let (device, uuid) = self.segments.device(index)?;
        Some(About {
            index,
            device,
            uuid,
        })
    }

    /// Reads an entry, which has this place in its slot; `into` is written whole.
    pub(super) fn entry(
        &self,
        id: SlotId,
        (at, words): (usize, &DeviceEntry),
        about: About<'_>,
        launch: &Launch,
        into: &mut ProcessDeviceView,
    ) {
        let About {
            index,
            device,
            uuid: its_uuid,
        } = about;
        let ProcessDeviceView {
            entry,
            ordinal,
            device: device_index,
            uuid,
            used,
            evicted,
            reserved,
            peak,
            quota,
            quota_until_ns,
            counters,
            lock,
            policy,
            memory_wait,
            mps,
            card_slice,
            submission_ns,
            loss,
        } = into;
        let total = device.total_bytes.load(Ordering::Relaxed);
        let launched = cached_settings::LaunchQuota::of(words);
        let settings = self.devices.get(index).copied().unwrap_or_default();
        *entry = at as u8;
        *ordinal = words.ordinal.load(Ordering::Relaxed) as u8;
        *device_index = index as u8;
        *uuid = its_uuid;
        *used = words.used.load(Ordering::Relaxed);
        *evicted = words.evicted.load(Ordering::Relaxed);
        *reserved = crate::protocol::account::granted(words.reserve.load(Ordering::Relaxed));
        *peak = words.peak.load(Ordering::Relaxed);
        *quota = cached_settings::resolve_quota(
            &launch.settings,
            at,
            &launch.rule,
            launched,
            total,
            self.now_ns,
        );
        *quota_until_ns = [Some(at), Some(codec::EVERY_DEVICE)]
            .into_iter()
            .flatten()
            .filter_map(|at| launch.settings.quotas.get(at)?.reverts(self.now_ns))
            .min();
        *counters = words.counters.view();
        self.lock(id, device, words, launch.share.paused, lock);
        *policy = cached_settings::resolve_policy(
            settings.policy.at(self.now_ns),
            self.common.policy.at(self.now_ns),
            launch.policy,
        );
        *memory_wait = queue::view(words);
        *mps = codec::mps_of(words.mps.load(Ordering::Relaxed));
        *card_slice = CardSlice::of(words.card_slice.load(Ordering::Relaxed));
        *submission_ns = words.submission_ns.load(Ordering::Relaxed);
        // ORDER: pairs with the Release in `Registration::lose`; the time is there.
        let lost = words.lost.load(Ordering::Acquire);
        *loss = codec::loss_of(lost, words.lost_ns.load(Ordering::Relaxed));
    }

    fn lock(
        &self,
        id: SlotId,
        device: &Device,
        words: &DeviceEntry,
        paused: bool,
        into: &mut LockView,
    ) {
        let LockView {
            state,
            since_ns,
            held_ns,
            waited_ns,
            acquisitions,
            forced,
            holds,
            waits,
            steps,
            releases,
            waited_for,
        } = into;
        let mut since = words.lock_since.load(Ordering::Relaxed);
        let said = words.lock_state.load(Ordering::Relaxed);
        // The owner word is authoritative: a process that was handed the lock while it was stopped still shows itself as
        // waiting.
        *state = if who(device.turn().owner()) == id.to_word() {
            if said != lock::HOLDS {
                since = device.owner_since.load(Ordering::Relaxed);
            }
            LockState::Hold
        } else if paused {
            LockState::Paused
        } else {
            match said {
                lock::WAITS => LockState::Wait,
                lock::ACTIVE => LockState::Active,
                lock::BACK => LockState::Back,
                _ => LockState::Idle,
            }
        };
        *since_ns = match state {
            LockState::Idle | LockState::Paused => 0,
            _ => since,
        };
        let lasts = self.now_ns.saturating_sub(since);
        let more = |when: bool| if when { lasts } else { 0 };
        let held = words.held_ns.load(Ordering::Relaxed);
        *held_ns = held.saturating_add(more(*state == LockState::Hold));
        let waited = words.waited_ns.load(Ordering::Relaxed);
        *waited_ns =
            waited.saturating_add(more(matches!(state, LockState::Wait | LockState::Back)));
        *acquisitions = words.acquisitions.load(Ordering::Relaxed);
        *forced = words.forced.load(Ordering::Relaxed);
        words.holds.read(holds);
        words.waits.read(waits);
        words.steps.read(steps);
        *releases = std::array::from_fn(|at| words.releases[at].load(Ordering::Relaxed));
        let blamed = words.blamed.iter().filter_map(|[who, ns]| {
            let ns = ns.load(Ordering::Relaxed);
            Some((SlotId::from_word(who.load(Ordering::Relaxed))?, ns))
        });
        waited_for.clear();
        waited_for.extend(blamed);
        waited_for.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    }
}
