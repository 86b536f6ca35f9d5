//! Descriptions of an edit for the audit log: its values in few words, and the settings that it changes.

use std::fmt::Display;

use shm_layout::{Change, OneQuota, Set};

use gpushare_base::text::edits::A_WHILE;

/// Returns the new values in few words, as the audit shows them: `quota 32GiB`, `weight=200 cap=30`.
pub fn summary(change: &Change) -> String {
    match change {
        Change::ProcessQuota { value, until, .. } => {
            let span = until.map_or("", |_| A_WHILE);
            format!("quota {value}{span}")
        }
        Change::ProcessQuotas { quotas, .. } => all(quotas),
        Change::ProcessShare { share, .. } => {
            // The end is not shown, because it is on the segments' clock, which has no meaning for a reader.
            let words = share.words().into_iter().map(|(key, set)| match key {
                "boost" => word(key, &set.map(|priority| format!("{priority}{A_WHILE}"))),
                _ => word(key, &set),
            });
            join(words)
        }
        Change::Policy { policy: None, .. } => "policy inherit".into(),
        Change::Policy {
            policy: Some(policy),
            until,
            ..
        } => {
            let span = until.map_or("", |_| A_WHILE);
            format!("policy {policy}{span}")
        }
        Change::DeviceLimit { value, .. } => format!("limit {value}"),
        Change::DeviceMemory {
            evict_after,
            overcommit,
            ..
        } => join([
            word("evict-after", evict_after),
            word(
                "overcommit",
                &overcommit.map(|on| if on { "on" } else { "off" }),
            ),
        ]),
        Change::Group { remove: true, .. } => "removed".into(),
        Change::Group {
            memory,
            weight,
            cap,
            ..
        } => join([
            word("memory", memory),
            word("weight", weight),
            word("cap", cap),
        ]),
        Change::Rule { rule: None, .. } => "no rule".into(),
        Change::Rule {
            rule: Some(rule), ..
        } => super::rule::summary(rule),
        Change::Trace { on: None, .. } => "trace off".into(),
        Change::Trace {
            on: Some(records), ..
        } => format!("trace of {records} records"),
        Change::Label { label, .. } if label.is_empty() => "no name".into(),
        Change::Label { label, .. } => format!("name {label}"),
    }
}

/// Returns the quota for every device, then those of single devices by the process's own numbers.
fn all(quotas: &[OneQuota]) -> String {
    let told = |one: &OneQuota| {
        let span = one.until.map_or("", |_| A_WHILE);
        format!("{}{span}", one.value)
    };
    let every = quotas.iter().find(|one| one.device.is_none());
    let mut words = format!("quota {}", every.map_or("inherit".into(), told));
    for one in quotas {
        if let Some(device) = one.device {
            words += &format!(", {} on its device {device}", told(one));
        }
    }
    words
}

/// Returns true if both edits set the same settings, so that one hides the other.
pub fn same_subject(one: &Change, other: &Change) -> bool {
    match (one, other) {
        (
            Change::ProcessQuota { slot, device, .. },
            Change::ProcessQuota {
                slot: s, device: d, ..
            },
        ) => slot == s && (device == d || device.is_none() || d.is_none()),
        (Change::ProcessShare { slot, .. }, Change::ProcessShare { slot: s, .. })
        | (Change::Trace { slot, .. }, Change::Trace { slot: s, .. })
        | (Change::Label { slot, .. }, Change::Label { slot: s, .. }) => slot == s,
        (Change::Policy { device, .. }, Change::Policy { device: d, .. }) => device == d,
        (Change::DeviceLimit { uuid, .. }, Change::DeviceLimit { uuid: u, .. }) => uuid == u,
        (Change::DeviceMemory { device, .. }, Change::DeviceMemory { device: d, .. }) => {
            device == d
        }
        (Change::Rule { index, .. }, Change::Rule { index: i, .. }) => index == i,
        (Change::Group { name, .. }, Change::Group { name: n, .. }) => name == n,
        _ => false,
    }
}

/// Returns the time at which an edit, or its first part, expires, on the segments' clock.
pub fn ends_ns(change: &Change) -> Option<u64> {
    match change {
        Change::ProcessQuota { until, .. } => until.map(|until| until.ns),
        Change::Policy { until, .. } => until.map(|until| until.ns),
        Change::ProcessQuotas { quotas, .. } => {
            quotas.iter().filter_map(|one| Some(one.until?.ns)).min()
        }
        _ => parts(change).into_iter().flatten().min(),
    }
}

/// Returns the expiry of each setting that an edit changes.
fn parts(change: &Change) -> Vec<Option<u64>> {
    fn part<T>(set: &Set<T>) -> Option<Option<u64>> {
        (!set.is_keep()).then(|| set.ends_ns())
    }
    let parts = match change {
        Change::ProcessShare { share, .. } => return share.ends(),
        Change::DeviceMemory {
            device: _,
            evict_after,
            overcommit,
        } => vec![part(evict_after), part(overcommit)],
        Change::Group {
            memory,
            weight,
            cap,
            remove: false,
            ..
        } => vec![part(memory), part(weight), part(cap)],
        _ => Vec::new(),
    };
    parts.into_iter().flatten().collect()
}

/// Returns true if all parts of the edit have expired at `now_ns`.
pub fn has_run_out(change: &Change, now_ns: u64) -> bool {
    match change {
        Change::ProcessQuota { until, .. } => until.is_some_and(|until| until.ns <= now_ns),
        Change::Policy { until, .. } => until.is_some_and(|until| until.ns <= now_ns),
        _ => {
            let mut parts = parts(change).into_iter().peekable();
            parts.peek().is_some() && parts.all(|ends| ends.is_some_and(|ns| ns <= now_ns))
        }
    }
}

/// Returns `key=value` of a setting, or `None` if the edit keeps it.
fn word<T: Display>(key: &str, set: &Set<T>) -> Option<String> {
    match set {
        Set::Keep => None,
        Set::Inherit => Some(format!("{key}=inherit")),
        Set::To(value) => Some(format!("{key}={value}")),
        Set::For(None, _) => Some(format!("{key}=inherit{A_WHILE}")),
        Set::For(Some(value), _) => Some(format!("{key}={value}{A_WHILE}")),
    }
}

fn join(words: impl IntoIterator<Item = Option<String>>) -> String {
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use shm_layout::{Boost, LockPolicy, OnFull, QuotaValue, ShareEdit, SlotId, Until};

    use super::*;

    fn examples() -> Vec<Change> {
        let slot = SlotId { index: 3, epoch: 9 };
        vec![
            Change::ProcessQuota {
                slot,
                device: Some(1),
                value: QuotaValue::Bytes(32 << 30),
                until: Some(Until {
                    ns: 7,
                    then: Some(QuotaValue::Unlimited),
                }),
            },
            Change::ProcessQuota {
                slot,
                device: None,
                value: QuotaValue::Percent(25),
                until: None,
            },
            Change::ProcessShare {
                slot,
                share: ShareEdit {
                    weight: Set::To(200),
                    priority: Set::Inherit,
                    paused: Set::To(true),
                    boost: Set::To(Boost {
                        priority: -3,
                        until_ns: 99,
                    }),
                    on_full: Set::To(OnFull::WaitFor(600_000_000_000)),
                    ..ShareEdit::default()
                },
            },
            Change::Policy {
                device: None,
                policy: Some(LockPolicy::default()),
                until: None,
            },
            Change::Policy {
                device: Some([7; 16]),
                policy: None,
                until: None,
            },
            Change::DeviceLimit {
                uuid: [9; 16],
                value: QuotaValue::Unlimited,
            },
            Change::Group {
                name: "team".into(),
                memory: Set::To(QuotaValue::Inherit),
                weight: Set::Keep,
                cap: Set::To(30),
                remove: false,
            },
        ]
    }

    #[test]
    fn each_edit_is_told_in_few_words() {
        let told: Vec<String> = examples().iter().map(summary).collect();
        assert_eq!(
            told,
            [
                "quota 32GiB for a while",
                "quota 25%",
                "weight=200 priority=inherit paused=true boost=-3 for a while on-full=wait=10m",
                "policy off order=fair idle=auto max-hold=10s grace=200ms sync-skips=0",
                "policy inherit",
                "limit none",
                "memory=inherit cap=30",
            ]
        );
    }

    #[test]
    fn edits_of_one_subject_are_told_from_edits_of_another() {
        let edits = examples();
        assert!(
            same_subject(&edits[0], &edits[1]),
            "a quota for all devices covers one device"
        );
        assert!(!same_subject(&edits[0], &edits[2]));
        assert!(!same_subject(&edits[3], &edits[4]));
    }
}
