//! Views of processes on devices.

use super::{
    super::{LockState, LockView, ProcessDeviceView},
    Launch, Reading,
};
use crate::{
    cached_settings,
    layout::{
        codec,
        state::{Device, DeviceEntry},
    },
    lock,
    memory::queue,
    protocol::{primitive::Ordering, turn::who},
    value::{CardSlice, SlotId, Uuid},
};

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
