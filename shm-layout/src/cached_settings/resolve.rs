//! Precedence of settings: operator, launch, default.

use crate::{
    layout::{
        codec::{DeviceSettings, EVERY_DEVICE, GroupSettings, SlotSettings},
        state::DeviceEntry,
    },
    protocol::primitive::Ordering,
    value::{LaunchShare, LockPolicy, Quota, SettingValues, Share, ShareSettings, Source},
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
