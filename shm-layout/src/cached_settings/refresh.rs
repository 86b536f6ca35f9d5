//! The refresh of the cache: the records are read again when an edit was made or a temporary setting has ended.

use super::{LastRead, OwnSlot, device_limit, resolve_policy, resolve_quota};
use crate::{
    layout::codec::{self, EVERY_DEVICE, GroupSettings},
    os::clock,
    protocol::primitive::Ordering,
    segment::{identity, records::Unread},
    value::{SettingValues, Share, Traits},
};

/// The earliest end of a temporary setting; [`u64::MAX`] while there is none.
struct Deadline(u64);

impl Deadline {
    fn take(&mut self, ends: impl IntoIterator<Item = u64>) {
        self.0 = ends.into_iter().fold(self.0, u64::min);
    }
}

impl OwnSlot {
    /// Returns the values of the rule that matches this process; `None` where that is unknown now.
    fn rule(&self) -> Option<SettingValues> {
        let known = self.cache.traits.get().cloned();
        let traits = match known {
            Some(traits) => traits,
            None => {
                let found = identity::traits(self.segments(), self.slot())?;
                let group = self.group_name.map(|name| codec::text_of(&name));
                self.cache
                    .traits
                    .get_or_init(|| Traits { group, ..found })
                    .clone()
            }
        };
        self.segments().control().rule_limits(&traits)
    }

    /// Reads the records again.
    pub(crate) fn refresh(&self) {
        let now = clock::now();
        let mut known = self.last_read();
        let generation = self.segments().control().generation();
        self.read_records(&mut known);
        let mut deadline = Deadline(u64::MAX);
        deadline.take(known.slot.share.reverts(now));
        deadline.take(known.slot.quotas[EVERY_DEVICE].reverts(now));
        deadline.take(known.common.reverts(now));
        deadline.take(known.group.set.reverts(now));
        for group in &known.reserving {
            deadline.take(group.set.reverts(now));
        }
        self.refresh_devices(&mut known, &mut deadline, now);
        let (group, rule) = (known.group.at(now), known.rule);
        let share = Share::resolve(&self.launch, Some(&known.slot.share), &group, &rule, now);
        self.cache.held_back.store(
            u64::from(share.paused || share.cap.is_some()),
            Ordering::Relaxed,
        );
        let pace = u64::from(share.weight) | u64::from(share.cap.unwrap_or(0)) << 32;
        self.cache.pace.store(pace, Ordering::Relaxed);
        let deadline = if deadline.0 == u64::MAX {
            0
        } else {
            deadline.0
        };
        self.cache.deadline.store(deadline, Ordering::Relaxed);
        // ORDER: pairs with the Acquire in look; publishes the numbers.
        self.cache.generation.store(generation, Ordering::Release);
    }

    /// Reads the records that are not a device's. Those that cannot be read keep their earlier values.
    fn read_records(&self, known: &mut LastRead) {
        let control = self.segments().control();
        known.slot = control.slot_settings(self.slot()).unwrap_or(known.slot);
        known.common = control.common_settings().unwrap_or(known.common);
        if let Some(name) = &self.group_name {
            known.group = control.group_settings(name).unwrap_or(known.group);
        }
        known.rule = self.rule().unwrap_or(known.rule);
        let is_other = |group: &GroupSettings| Some(group.name) != self.group_name;
        let others: Result<Vec<GroupSettings>, Unread> = control
            .defined_groups()
            .filter(|group| group.as_ref().is_ok_and(is_other) || group.is_err())
            .collect();
        if let Ok(mut others) = others {
            others.retain(GroupSettings::may_reserve);
            known.reserving = others;
        }
        let of_groups = !known.reserving.is_empty() || known.group.may_reserve();
        let of_processes = self.segments().is_brokered() && control.has_reserves();
        let reserves = &self.cache.reserves;
        reserves.store(u64::from(of_groups || of_processes), Ordering::Relaxed);
    }

    /// Reads the records of the process's devices, and caches the limits that follow.
    fn refresh_devices(&self, known: &mut LastRead, deadline: &mut Deadline, now: u64) {
        let control = self.segments().control();
        let group_memory = known.group.set.memory.at(now).unwrap_or_default();
        let own = self.own();
        for (index, cached) in self.cache.limits.iter().enumerate() {
            let Some(own) = &own[index] else { continue };
            let settings = control
                .device_settings(&own.uuid)
                .unwrap_or(known.devices[index]);
            known.devices[index] = settings;
            deadline.take(known.slot.quotas[index].reverts(now));
            deadline.take(settings.reverts(now));
            let total = own.total_bytes;
            let quota = resolve_quota(&known.slot, index, &known.rule, own.launch, total, now);
            cached
                .quota
                .store(quota.bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
            cached.source.store(quota.source.code(), Ordering::Relaxed);
            let group = group_memory.of_device(total).flatten();
            cached
                .group
                .store(group.unwrap_or(u64::MAX), Ordering::Relaxed);
            let (policy, _) = resolve_policy(
                settings.policy.at(now),
                known.common.policy.at(now),
                self.launch_policy,
            );
            let order = policy.order.code() + 1;
            cached.order.store(order, Ordering::Relaxed);
            let limit = device_limit(&settings, &known.common, total);
            cached
                .device
                .store(limit.unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }
}
