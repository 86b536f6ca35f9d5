//! Which of several settings holds: operator, launch, default.

use crate::{
    codec::{
        self, DeviceSettings, EVERY_DEVICE, GroupSettings, LaunchShare, ShareSettings, SlotSettings,
    },
    layout::state::DeviceEntry,
    protocol::primitive::Ordering,
    value::{LockPolicy, Quota, RuleLimits, Share, Source},
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

    /// As a quota.
    fn quota(self) -> Quota {
        let source = codec::source_of(self.kind >> 8);
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
    rule: &RuleLimits,
    launch: LaunchQuota,
    total_bytes: u64,
    now_ns: u64,
) -> Quota {
    for setting in [control.quotas.get(entry), control.quotas.get(EVERY_DEVICE)] {
        if let Some(bytes) = setting.and_then(|setting| setting.at(now_ns).of_device(total_bytes)) {
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
        // Who asked for less at the launch gets less.
        Some(own) if is_less(own) => launch,
        _ => Quota {
            bytes,
            source: Source::Rule,
        },
    }
}

/// Operator before rule before launch before group before default.
pub(crate) fn resolve_share(
    launch: &LaunchShare,
    control: Option<&ShareSettings>,
    group: Option<&GroupSettings>,
    rule: &RuleLimits,
    now_ns: u64,
) -> Share {
    let mut share = Share::default();
    if let Some(group) = group {
        let (weight, cap) = (group.weight.at(now_ns), group.cap.at(now_ns));
        if weight.is_some() || cap.is_some() {
            share.weight = weight.unwrap_or(share.weight);
            share.cap = cap;
            share.source = Source::Group;
        }
    }
    if launch.weight.is_some() || launch.priority.is_some() || launch.cap.is_some() {
        share.weight = launch.weight.unwrap_or(share.weight);
        share.priority = launch.priority.unwrap_or(share.priority);
        share.cap = launch.cap.or(share.cap);
        share.source = launch.source;
    }
    share.on_full = launch.on_full.unwrap_or_default();
    apply_rule(rule, &mut share);
    let Some(control) = control else { return share };
    share.on_full = control.on_full.at(now_ns).unwrap_or(share.on_full);
    let boost = control.boost.filter(|boost| boost.until_ns > now_ns);
    let (weight, cap) = (control.weight.at(now_ns), control.cap.at(now_ns));
    share.weight = weight.unwrap_or(share.weight);
    share.priority = control.priority.unwrap_or(share.priority);
    share.cap = cap.or(share.cap);
    share.paused = control.paused.at(now_ns).unwrap_or(false);
    share.evict = share.paused && control.evict.at(now_ns).unwrap_or(false);
    if let Some(boost) = boost {
        share.priority = boost.priority;
        share.boost_until_ns = Some(boost.until_ns);
    }
    share.until_ns = control.reverts(now_ns).min();
    let touched = weight.is_some()
        || control.priority.is_some()
        || cap.is_some()
        || share.paused
        || boost.is_some();
    if touched {
        share.source = Source::Operator;
    }
    share
}

/// A rule is the operator's word: it stands above the launch. A lower cap of the launch stays.
fn apply_rule(rule: &RuleLimits, share: &mut Share) {
    if let Some(weight) = rule.weight {
        (share.weight, share.source) = (weight, Source::Rule);
    }
    if let Some(priority) = rule.priority {
        (share.priority, share.source) = (priority, Source::Rule);
    }
    if let Some(cap) = rule.cap
        && share.cap.is_none_or(|own| own > cap)
    {
        (share.cap, share.source) = (Some(cap), Source::Rule);
    }
    if let Some(on_full) = rule.on_full {
        share.on_full = on_full;
    }
}

/// The idle time after which a process is evicted: its own setting, its rule's, its launch's, then the least of those of the devices that it holds memory
/// on, each the device's own before the one for all.
pub(crate) fn resolve_evict_after<'d>(
    launch: &LaunchShare,
    control: Option<&ShareSettings>,
    rule: &RuleLimits,
    devices: impl Iterator<Item = &'d DeviceSettings>,
    common: &DeviceSettings,
    now_ns: u64,
) -> Option<u64> {
    let own = control
        .and_then(|control| control.evict_after.at(now_ns))
        .or(rule.evict_after)
        .or(launch.evict_after);
    match own {
        Some(own) => own.ns(),
        None => devices
            .filter_map(|device| {
                let own = device.evict_after.at(now_ns);
                own.or(common.evict_after.at(now_ns))?.ns()
            })
            .min(),
    }
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

/// What a process's launch says about its policy. One that made no sense is no policy, and says so.
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
