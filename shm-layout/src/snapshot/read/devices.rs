//! The devices and the groups, from the processes that were read.

use std::borrow::Borrow;

use super::{
    super::{DeviceView, GroupView, ProcessDeviceView, ProcessView},
    Reading,
};
use crate::{
    cached_settings,
    layout::codec::{self, DeviceSettings},
    protocol::{
        primitive::Ordering,
        turn::{BITMAP, who},
    },
    value::{EvictAfter, Histogram, SlotId, is_pick_held},
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
