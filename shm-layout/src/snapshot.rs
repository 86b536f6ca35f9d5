//! The whole segment as plain owned data, whatever its bytes.

use crate::{
    HISTOGRAM, book,
    codec::{self, DeviceSettings, GroupSettings, SlotSettings},
    control::SMALL_WORDS,
    edit::QuotaValue,
    events::REASONS,
    ids::{SlotId, Uuid},
    ledger::{CounterView, Quota},
    limits::Source,
    liveness::{self, Bytes, Mark},
    lock,
    primitive::Ordering,
    protocol::{claim, seqlock, turn::who},
    records::RecordId,
    register::Identity,
    segment::Segments,
    settings::{LaunchShare, LockPolicy, Share, resolve_share},
    state::{Device, DeviceEntry, IDENTITY_WORDS, Slot},
};

/// Everything at about one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was taken.
    pub time_ns: u64,
    /// The living, by slot.
    pub processes: Vec<ProcessView>,
    /// The devices anybody entered.
    pub devices: Vec<DeviceView>,
    /// The groups anybody named.
    pub groups: Vec<GroupView>,
    /// The newest edit.
    pub generation: u64,
    /// Processes that found no slot.
    pub unmanaged: u64,
    /// The next event's number.
    pub events_head: u64,
    /// Times two holders were seen: always 0.
    pub violations: u64,
    /// What could not be read, as sentences.
    pub warnings: Vec<String>,
}

/// Whether a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It lives.
    Live,
    /// It lives; its keeper thread has not started.
    NoKeeper,
    /// It died and nobody has given its slot back yet.
    Dead,
    /// Its lock could not be looked at.
    Unknown,
}

/// One process.
#[derive(Clone, Debug)]
pub struct ProcessView {
    /// Its slot.
    pub slot: SlotId,
    /// Who it is, by its own account.
    pub identity: Identity,
    /// When it registered.
    pub registered_ns: u64,
    /// Its keeper's last tick.
    pub heartbeat_ns: u64,
    /// Whether it lives.
    pub alive: Liveness,
    /// Its share.
    pub share: Share,
    /// Its group.
    pub group: Option<String>,
    /// The last control generation it obeyed.
    pub acked: u64,
    /// A launch variable had a bad value.
    pub invalid: bool,
    /// Its devices.
    pub devices: Vec<ProcessDeviceView>,
}

/// One process on one device.
#[derive(Clone, Debug)]
pub struct ProcessDeviceView {
    /// Its entry in the slot.
    pub entry: u8,
    /// The process's own ordinal of the device.
    pub ordinal: u8,
    /// The device's index in the segment.
    pub device: u8,
    /// The device's UUID.
    pub uuid: Uuid,
    /// Bytes held.
    pub used: u64,
    /// The most it ever held.
    pub peak: u64,
    /// Its quota in force.
    pub quota: Quota,
    /// When the quota reverts by itself.
    pub quota_until_ns: Option<u64>,
    /// What it did.
    pub counters: CounterView,
    /// Its dealings with the lock.
    pub lock: LockView,
    /// The policy that holds for it.
    pub policy: (LockPolicy, Source),
}

/// Where a process stands with a device's lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockState {
    /// Neither holds nor waits.
    #[default]
    Idle,
    /// Waits.
    Wait,
    /// Holds.
    Hold,
    /// Paused by the operator.
    Paused,
}

/// A process's lock statistics on one device. A hold or wait under way is included in the sums.
#[derive(Clone, Debug, Default)]
pub struct LockView {
    /// Holds, waits or neither.
    pub state: LockState,
    /// Since when; 0 when idle.
    pub since_ns: u64,
    /// Nanoseconds held.
    pub held_ns: u64,
    /// Nanoseconds waited.
    pub waited_ns: u64,
    /// Times acquired.
    pub acquisitions: u64,
    /// Times it was forced away.
    pub forced: u64,
    /// Holds by log2 of nanoseconds.
    pub hold_hist: [u32; HISTOGRAM],
    /// Waits by log2 of nanoseconds.
    pub wait_hist: [u32; HISTOGRAM],
    /// Releases by [`crate::Reason`].
    pub releases: [u64; REASONS],
    /// Whom it waited for longest: holder and nanoseconds, most first.
    pub waited_for: Vec<(SlotId, u64)>,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceView {
    /// Its index in the segment.
    pub index: u8,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its memory.
    pub total_bytes: u64,
    /// [`crate::DEVICE_SIM`], [`crate::DEVICE_MIG`].
    pub flags: u32,
    /// Who holds its lock.
    pub owner: Option<SlotId>,
    /// Since when.
    pub owner_since_ns: u64,
    /// Who waits, longest first.
    pub waiters: Vec<SlotId>,
    /// The operator's policy, or the default.
    pub policy: (LockPolicy, Source),
    /// The operator's limit on all processes together.
    pub limit: Option<u64>,
    /// Hand-offs.
    pub handoffs: u64,
    /// Forced releases.
    pub forced: u64,
    /// Times the lock was taken over from a dead holder.
    pub takeovers: u64,
    /// From the last release to its waiter running.
    pub last_handoff_ns: u64,
    /// Times two holders were seen: always 0.
    pub violations: u64,
    /// Claims of `gpushare pick` in force.
    pub picks: u32,
}

/// One group.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// Its members.
    pub members: Vec<SlotId>,
    /// Whether the operator defined it; else a process only named it.
    pub defined: bool,
    /// What its members may hold together on each device.
    pub memory: QuotaValue,
    /// Each member's weight.
    pub weight: Option<u32>,
    /// Each member's cap.
    pub cap: Option<u32>,
}

/// Copies the segments out. Never panics and never waits, whatever their bytes.
pub fn snapshot(segments: &Segments, now_ns: u64) -> Snapshot {
    let mut reading = Reading::new(segments, now_ns);
    let state = segments.state();
    let processes: Vec<ProcessView> = (0..state.slots.len())
        .filter_map(|index| reading.process(index))
        .collect();
    let devices = (0..state.devices.len())
        .filter_map(|index| reading.device(index, &processes))
        .collect();
    let groups = reading.groups(&processes);
    Snapshot {
        time_ns: now_ns,
        devices,
        groups,
        generation: segments.control().generation(),
        unmanaged: state.unmanaged.load(Ordering::Relaxed),
        events_head: state.ring.head.load(Ordering::Relaxed),
        violations: state
            .devices
            .iter()
            .map(|device| device.violations.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add),
        processes,
        warnings: reading.warnings,
    }
}

/// What one snapshot needs of the records, read once.
struct Reading<'s> {
    segments: &'s Segments,
    now_ns: u64,
    /// To see whose byte is locked; `None` where the file cannot be opened.
    bytes: Option<Bytes>,
    common: DeviceSettings,
    /// By device index.
    devices: Vec<DeviceSettings>,
    warnings: Vec<String>,
}

impl<'s> Reading<'s> {
    fn new(segments: &'s Segments, now_ns: u64) -> Self {
        let control = segments.control();
        let mut warnings = Vec::new();
        let common = control.common_settings().unwrap_or_else(|| {
            warnings.push(
                "the settings for all devices cannot be read: an edit is stuck; repeat it"
                    .to_owned(),
            );
            DeviceSettings::default()
        });
        let devices = segments
            .state()
            .devices
            .iter()
            .map(|device| {
                let settings = device
                    .is_ready()
                    .then(|| control.device_settings(&device.uuid()));
                settings.flatten().unwrap_or_default()
            })
            .collect();
        let bytes = segments.slot_bytes(false).ok();
        Reading {
            segments,
            now_ns,
            bytes,
            common,
            devices,
            warnings,
        }
    }

    fn process(&mut self, index: usize) -> Option<ProcessView> {
        let state = self.segments.state();
        let slot = &state.slots[index];
        let epoch = claim::live(&slot.claim)?;
        let id = SlotId {
            index: index as u16,
            epoch,
        };
        let mut words = [0; IDENTITY_WORDS];
        let identity = match seqlock::read(&slot.identity_seq, &slot.identity, &mut words) {
            Some(()) => Identity::decode(&words),
            None => {
                self.warnings.push(format!(
                    "who has slot {index} cannot be read: it was published halfway"
                ));
                Identity::default()
            }
        };
        let control = self.segments.control();
        let settings = control.slot_settings(id).unwrap_or_else(|| {
            self.warnings.push(format!(
                "the settings of slot {index} cannot be read: an edit is stuck; repeat it"
            ));
            SlotSettings::default()
        });
        let name = state.group_name(slot.group.load(Ordering::Relaxed));
        let group = name
            .and_then(|name| control.group_settings(&name))
            .unwrap_or_default();
        let share = resolve_share(
            &LaunchShare::of_slot(slot),
            Some(&settings),
            Some(&group),
            self.now_ns,
        );
        let invalid = slot.invalid.load(Ordering::Relaxed) != 0;
        let launch_policy = codec::policy_of(&std::array::from_fn(|at| {
            slot.launch_policy[at].load(Ordering::Relaxed)
        }));
        let policy_source = codec::source_of(slot.launch_policy_source.load(Ordering::Relaxed));
        let launch = Launch {
            settings,
            share,
            policy: launch_policy.map(|policy| (policy, policy_source)),
        };
        let devices = (0..slot.entries.len())
            .filter_map(|entry| self.entry(id, &slot.entries[entry], entry, &launch))
            .collect();
        Some(ProcessView {
            slot: id,
            identity,
            registered_ns: slot.registered_ns.load(Ordering::Relaxed),
            heartbeat_ns: slot.heartbeat_ns.load(Ordering::Relaxed),
            alive: self.liveness(slot, index),
            share,
            group: name.map(|name| codec::text_of(&name)),
            acked: slot.acked.load(Ordering::Relaxed),
            invalid,
            devices,
        })
    }

    fn liveness(&self, slot: &Slot, index: usize) -> Liveness {
        let keeper = liveness::mark_of(&slot.keeper);
        match self.bytes.as_ref().map(|bytes| bytes.is_locked(index)) {
            Some(Ok(false)) => Liveness::Dead,
            _ if keeper == Mark::Dead => Liveness::Dead,
            Some(Ok(true)) if keeper == Mark::None => Liveness::NoKeeper,
            Some(Ok(true)) => Liveness::Live,
            _ => Liveness::Unknown,
        }
    }

    fn entry(
        &self,
        id: SlotId,
        words: &DeviceEntry,
        entry: usize,
        launch: &Launch,
    ) -> Option<ProcessDeviceView> {
        // ORDER: pairs with the Release in add_device.
        let device_index = (words.device.load(Ordering::Acquire) as usize).checked_sub(1)?;
        let device = self
            .segments
            .state()
            .devices
            .get(device_index)
            .filter(|device| device.is_ready())?;
        let total = device.total_bytes.load(Ordering::Relaxed);
        let quota = book::resolve_quota(&launch.settings, entry, words, total, self.now_ns);
        let reverts = [Some(entry), Some(codec::EVERY_DEVICE)]
            .into_iter()
            .flatten()
            .filter_map(|at| launch.settings.quotas.get(at)?.reverts(self.now_ns))
            .min();
        let settings = self.devices.get(device_index).copied().unwrap_or_default();
        Some(ProcessDeviceView {
            entry: entry as u8,
            ordinal: words.ordinal.load(Ordering::Relaxed) as u8,
            device: device_index as u8,
            uuid: device.uuid(),
            used: words.used.load(Ordering::Relaxed),
            peak: words.peak.load(Ordering::Relaxed),
            quota,
            quota_until_ns: reverts,
            counters: words.counters.view(),
            lock: self.lock(id, device, words, launch.share.paused),
            policy: book::resolve_policy(settings.policy, self.common.policy, launch.policy),
        })
    }

    fn lock(&self, id: SlotId, device: &Device, words: &DeviceEntry, paused: bool) -> LockView {
        let since = words.lock_since.load(Ordering::Relaxed);
        let holds = who(device.turn().owner()) == id.to_word();
        let state = match words.lock_state.load(Ordering::Relaxed) {
            lock::HOLDS if holds => LockState::Hold,
            _ if paused => LockState::Paused,
            lock::WAITS => LockState::Wait,
            _ => LockState::Idle,
        };
        let lasts = self.now_ns.saturating_sub(since);
        let more = |when: LockState| if state == when { lasts } else { 0 };
        let mut waited_for: Vec<(SlotId, u64)> = words
            .blamed
            .iter()
            .map(|[who, ns]| (who.load(Ordering::Relaxed), ns.load(Ordering::Relaxed)))
            .filter_map(|(who, ns)| Some((SlotId::from_word(who)?, ns)))
            .collect();
        waited_for.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        LockView {
            state,
            since_ns: if matches!(state, LockState::Hold | LockState::Wait) {
                since
            } else {
                0
            },
            held_ns: words
                .held_ns
                .load(Ordering::Relaxed)
                .saturating_add(more(LockState::Hold)),
            waited_ns: words
                .waited_ns
                .load(Ordering::Relaxed)
                .saturating_add(more(LockState::Wait)),
            acquisitions: words.acquisitions.load(Ordering::Relaxed),
            forced: words.forced.load(Ordering::Relaxed),
            hold_hist: std::array::from_fn(|at| words.hold_hist[at].load(Ordering::Relaxed)),
            wait_hist: std::array::from_fn(|at| words.wait_hist[at].load(Ordering::Relaxed)),
            releases: std::array::from_fn(|at| words.releases[at].load(Ordering::Relaxed)),
            waited_for,
        }
    }

    fn device(&self, index: usize, processes: &[ProcessView]) -> Option<DeviceView> {
        let device = &self.segments.state().devices[index];
        if !device.is_ready() {
            return None;
        }
        let settings = self.devices.get(index).copied().unwrap_or_default();
        let total_bytes = device.total_bytes.load(Ordering::Relaxed);
        let bits = device.turn().waiting();
        let mut waiters: Vec<(u64, SlotId)> = processes
            .iter()
            .filter(|process| {
                let at = usize::from(process.slot.index);
                bits.get(at / 64)
                    .is_some_and(|word| word >> (at % 64) & 1 == 1)
            })
            .filter_map(|process| {
                let entry = process
                    .devices
                    .iter()
                    .find(|entry| usize::from(entry.device) == index)?;
                Some((entry.lock.since_ns, process.slot))
            })
            .collect();
        waiters.sort_unstable();
        let owner = SlotId::from_word(who(device.turn().owner()));
        let picks = device
            .picks
            .iter()
            .filter(|until| until.load(Ordering::Relaxed) > self.now_ns)
            .count();
        let name: [u64; 8] = std::array::from_fn(|at| device.name[at].load(Ordering::Relaxed));
        Some(DeviceView {
            index: index as u8,
            uuid: device.uuid(),
            name: codec::text_of(&name),
            total_bytes,
            flags: device.flags.load(Ordering::Relaxed),
            owner_since_ns: owner.map_or(0, |_| device.owner_since.load(Ordering::Relaxed)),
            owner,
            waiters: waiters.into_iter().map(|(_, slot)| slot).collect(),
            policy: book::resolve_policy(settings.policy, self.common.policy, None),
            limit: book::device_limit(&settings, &self.common, total_bytes),
            handoffs: device.handoffs.load(Ordering::Relaxed),
            forced: device.forced.load(Ordering::Relaxed),
            takeovers: device.takeovers.load(Ordering::Relaxed),
            last_handoff_ns: device.last_handoff_ns.load(Ordering::Relaxed),
            violations: device.violations.load(Ordering::Relaxed),
            picks: picks as u32,
        })
    }

    /// Groups that a process named, and groups that the operator defined.
    fn groups(&self, processes: &[ProcessView]) -> Vec<GroupView> {
        let control = self.segments.control();
        let mut names: Vec<codec::NameWords> = self
            .segments
            .state()
            .groups
            .iter()
            .filter_map(|group| group.name())
            .collect();
        for index in 0..control.groups.len() {
            let words = control.read::<SMALL_WORDS>(RecordId::Group(index));
            let settings = words
                .map(|words| GroupSettings::decode(&words))
                .filter(|settings| settings.present);
            if let Some(settings) = settings.filter(|settings| !names.contains(&settings.name)) {
                names.push(settings.name);
            }
        }
        let view = |name: codec::NameWords| {
            let settings = control.group_settings(&name).unwrap_or_default();
            let text = codec::text_of(&name);
            let members = processes
                .iter()
                .filter(|process| process.group.as_ref() == Some(&text));
            GroupView {
                members: members.map(|process| process.slot).collect(),
                name: text,
                defined: settings.present,
                memory: settings.memory,
                weight: settings.weight,
                cap: settings.cap,
            }
        };
        let mut groups: Vec<GroupView> = names.into_iter().map(view).collect();
        groups.retain(|group| group.defined || !group.members.is_empty());
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }
}

/// What holds for all of a process's devices.
struct Launch {
    settings: SlotSettings,
    share: Share,
    policy: Option<(LockPolicy, Source)>,
}

/// The `q` quantile of a log2 histogram, as nanoseconds (the bucket's geometric middle); `None` when it is empty.
pub fn quantile(hist: &[u32; HISTOGRAM], q: f64) -> Option<u64> {
    let total: u64 = hist.iter().map(|count| u64::from(*count)).sum();
    let rank = (q.clamp(0.0, 1.0) * total as f64).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (bucket, count) in hist.iter().enumerate() {
        seen += u64::from(*count);
        if seen >= rank {
            return Some(lock::bucket_middle(bucket));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_nothing_are_nothing() {
        assert_eq!(quantile(&[0; HISTOGRAM], 0.5), None);
    }

    #[test]
    fn quantiles_name_the_bucket_they_fall_in() {
        let mut hist = [0; HISTOGRAM];
        (hist[10], hist[20]) = (99, 1);
        assert_eq!(quantile(&hist, 0.5), Some(lock::bucket_middle(10)));
        assert_eq!(quantile(&hist, 0.99), Some(lock::bucket_middle(10)));
        assert_eq!(quantile(&hist, 1.0), Some(lock::bucket_middle(20)));
        assert_eq!(quantile(&hist, f64::NAN), Some(lock::bucket_middle(10)));
    }
}
