//! Precedence of settings: operator, launch, default; and the shares of other slots that follow, for the choice of the next
//! holder.

use crate::{
    layout::{
        codec::{DeviceSettings, EVERY_DEVICE, GroupSettings, SlotSettings},
        state::{DeviceEntry, Slot},
    },
    protocol::primitive::Ordering,
    segment::{Segments, identity},
    value::{
        LAUNCH_WORDS, LaunchShare, LockPolicy, Quota, SettingValues, Share, ShareSettings, SlotId,
        Source,
    },
};

/// The words of a quota as launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchQuota {
    pub(crate) kind: u64,
    pub(crate) bytes: u64,
}

impl LaunchQuota {
    pub(crate) fn of(words: &DeviceEntry) -> LaunchQuota {
        LaunchQuota {
            kind: words.launch_quota.load(Ordering::Relaxed),
            bytes: words.launch_bytes.load(Ordering::Relaxed),
        }
    }

    /// Converts the value to a quota.
    fn quota(self) -> Quota {
        let source = Source::of_code(self.kind >> 8);
        let bytes = (self.kind & 0xff == 2).then_some(self.bytes);
        let is_said = matches!(self.kind & 0xff, 1 | 2) || source == Source::Invalid;
        match is_said {
            true => Quota { bytes, source },
            false => Quota::default(),
        }
    }

    pub(crate) fn write(self, words: &DeviceEntry) {
        words.launch_bytes.store(self.bytes, Ordering::Relaxed);
        words.launch_quota.store(self.kind, Ordering::Relaxed);
    }
}

/// The quota of a process on a device: operator, then the lesser of its rule's and its launch's.
pub(crate) fn resolve_quota(
    control: &SlotSettings,
    entry: usize,
    rule: &SettingValues,
    launch: LaunchQuota,
    total_bytes: u64,
    now_ns: u64,
) -> Quota {
    for setting in [control.quotas.get(entry), control.quotas.get(EVERY_DEVICE)] {
        if let Some(bytes) = setting.and_then(|setting| setting.at(now_ns)?.of_device(total_bytes))
        {
            return Quota {
                bytes,
                source: Source::Operator,
            };
        }
    }
    let launch = launch.quota();
    let of_rule = rule.memory.and_then(|value| value.of_device(total_bytes));
    let Some(bytes) = of_rule else {
        return launch;
    };
    let is_less = |own: u64| bytes.is_none_or(|most| own <= most);
    match launch.bytes {
        // A launch that asked for less gets less.
        Some(own) if is_less(own) => launch,
        _ => Quota {
            bytes,
            source: Source::Rule,
        },
    }
}

/// Resolves the settings of a process that are in force. Without a setting of its own for the idle time after which it is
/// evicted, the shortest of the devices that it has memory on applies, each the device's own before the common one.
pub(crate) fn resolve_share<'d>(
    launch: &LaunchShare,
    control: Option<&ShareSettings>,
    group: Option<&GroupSettings>,
    rule: &SettingValues,
    devices: impl Iterator<Item = &'d DeviceSettings>,
    common: &DeviceSettings,
    now_ns: u64,
) -> Share {
    let group = group.map(|group| group.at(now_ns)).unwrap_or_default();
    let mut share = Share::resolve(launch, control, &group, rule, now_ns);
    if !matches!(share.sources.evict_after, Source::Default | Source::Invalid) {
        return share;
    }
    let of_devices = devices.filter_map(|device| {
        let own = device.memory.evict_after.at(now_ns);
        own.or(common.memory.evict_after.at(now_ns))?.ns()
    });
    if let Some(ns) = of_devices.min() {
        (share.evict_after, share.sources.evict_after) = (Some(ns), Source::Operator);
    }
    share
}

/// The limit on all processes together on a device.
pub(crate) fn device_limit(
    device: &DeviceSettings,
    common: &DeviceSettings,
    total_bytes: u64,
) -> Option<u64> {
    device
        .limit
        .of_device(total_bytes)
        .or_else(|| common.limit.of_device(total_bytes))
        .flatten()
}

/// Returns the policy that a process's launch asked for. An invalid policy counts as unset and is reported as invalid.
pub(crate) fn launch_policy(
    policy: Option<LockPolicy>,
    source: Source,
) -> Option<(LockPolicy, Source)> {
    match source {
        Source::Invalid => Some((LockPolicy::default(), source)),
        _ => policy.map(|policy| (policy, source)),
    }
}

/// The policy on a device: the operator's for it, for all, then the launch's.
pub(crate) fn resolve_policy(
    device: Option<LockPolicy>,
    common: Option<LockPolicy>,
    launch: Option<(LockPolicy, Source)>,
) -> (LockPolicy, Source) {
    match device.or(common) {
        Some(policy) => (policy, Source::Operator),
        None => launch.unwrap_or_default(),
    }
}

/// The cached shares of other slots, for the choice of the next holder.
#[derive(Default)]
pub(crate) struct Shares {
    others: Vec<Option<Other>>,
}

#[derive(Clone, Copy)]
struct Other {
    generation: u64,
    slot: SlotId,
    settings: ShareSettings,
    group: GroupSettings,
    rule: SettingValues,
    /// The launch's words that `share` was resolved from.
    launch: [u64; LAUNCH_WORDS],
    share: Share,
    /// Time until which `share` holds: the next temporary setting ends then.
    until_ns: u64,
}

impl Shares {
    /// Returns a slot's share. Resolved once for each generation, because a choice among many waiters asks for all of theirs.
    pub(crate) fn share_of(
        &mut self,
        segments: &Segments,
        id: SlotId,
        slot: &Slot,
        now_ns: u64,
    ) -> Share {
        let generation = segments.control().generation();
        // The process may write over these words at any time.
        let launch = slot.launch_words().map(|word| word.load(Ordering::Relaxed));
        let index = usize::from(id.index);
        if self.others.len() <= index {
            self.others.resize(index + 1, None);
        }
        let cached = &mut self.others[index];
        let known = cached.filter(|other| other.slot == id);
        let read = match known {
            Some(other) if other.generation == generation => other,
            _ => read(segments, id, known, generation),
        };
        if read.launch == launch && now_ns < read.until_ns {
            return read.share;
        }
        cached.insert(read.resolved(segments, launch, now_ns)).share
    }
}

/// Reads a slot's settings. A record that cannot be read completely leaves what is `known` of it in force.
fn read(segments: &Segments, id: SlotId, known: Option<Other>, generation: u64) -> Other {
    let control = segments.control();
    let name = segments.group_name_of(usize::from(id.index));
    let group = name.and_then(|name| control.group_settings(&name));
    let settings = control.slot_settings(id).map(|settings| settings.share);
    let rule = || control.rule_limits(&identity::traits(segments, id)?);
    Other {
        generation,
        slot: id,
        settings: settings.or(known.map(|it| it.settings)).unwrap_or_default(),
        group: group.or(known.map(|it| it.group)).unwrap_or_default(),
        rule: rule().or(known.map(|it| it.rule)).unwrap_or_default(),
        launch: [0; LAUNCH_WORDS],
        share: Share::default(),
        until_ns: 0,
    }
}

impl Other {
    fn resolved(self, segments: &Segments, launch: [u64; LAUNCH_WORDS], now_ns: u64) -> Other {
        let share = resolve_share(
            &segments.bounded(LaunchShare::decode(&launch)),
            Some(&self.settings),
            Some(&self.group),
            &self.rule,
            // The lock has no use for the idle time.
            std::iter::empty(),
            &DeviceSettings::default(),
            now_ns,
        );
        let ends = self.settings.reverts(now_ns);
        let until_ns = ends.chain(self.group.set.reverts(now_ns)).min();
        Other {
            launch,
            share,
            until_ns: until_ns.unwrap_or(u64::MAX),
            ..self
        }
    }
}
