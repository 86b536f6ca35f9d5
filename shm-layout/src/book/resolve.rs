//! Which of several settings holds: operator, launch, default.

use crate::{
    codec::{self, DeviceSettings, EVERY_DEVICE, SlotSettings},
    edit::QuotaValue,
    ledger::Quota,
    limits::Source,
    primitive::Ordering,
    settings::LockPolicy,
    state::DeviceEntry,
};

/// A quota value as bytes: `None` is "not set here", `Some(None)` is unlimited.
pub(crate) fn bytes_of(value: QuotaValue, total_bytes: u64) -> Option<Option<u64>> {
    match value {
        QuotaValue::Inherit => None,
        QuotaValue::Unlimited => Some(None),
        QuotaValue::Bytes(bytes) => Some(Some(bytes)),
        QuotaValue::Percent(percent) => Some(Some(
            (u128::from(total_bytes) * u128::from(percent.min(100)) / 100) as u64,
        )),
    }
}

/// The quota of a process on a device: operator before launch.
pub(crate) fn resolve_quota(
    control: &SlotSettings,
    entry: usize,
    words: &DeviceEntry,
    total_bytes: u64,
    now_ns: u64,
) -> Quota {
    for setting in [control.quotas.get(entry), control.quotas.get(EVERY_DEVICE)] {
        if let Some(bytes) = setting.and_then(|setting| bytes_of(setting.at(now_ns), total_bytes)) {
            return Quota {
                bytes,
                source: Source::Operator,
            };
        }
    }
    let launch = words.launch_quota.load(Ordering::Relaxed);
    let source = codec::source_of(launch >> 8);
    match launch & 0xff {
        1 => Quota {
            bytes: None,
            source,
        },
        2 => Quota {
            bytes: Some(words.launch_bytes.load(Ordering::Relaxed)),
            source,
        },
        _ if source == Source::Invalid => Quota {
            bytes: None,
            source,
        },
        _ => Quota::default(),
    }
}

/// The limit on everybody together on a device.
pub(crate) fn device_limit(
    device: &DeviceSettings,
    common: &DeviceSettings,
    total_bytes: u64,
) -> Option<u64> {
    bytes_of(device.limit, total_bytes)
        .or_else(|| bytes_of(common.limit, total_bytes))
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
