//! A request for an edit, and descriptions of it for the audit log: its values in few words, and the settings that it changes.

use serde::{Deserialize, Serialize};
use shm_layout::text::{self, INHERIT};
use shm_layout::{
    Change, EditError, LockPolicy, OneQuota, ProcessView, Quota, QuotaValue, Set, SlotId, Snapshot,
    Source,
};

use gpushare_base::text::edits::A_WHILE;

/// The program that made an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The control program.
    Ctl,
    /// The dashboard.
    Tui,
}

impl Place {
    /// Returns the word in the record.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ctl => "ctl",
            Self::Tui => "tui",
        }
    }
}

/// Maximum number of characters of a reason, so that the log stays readable.
const LONGEST_REASON: usize = 500;

/// An edit, and the facts about it for the audit log.
#[derive(Debug, Clone)]
pub struct EditRequest {
    /// The change.
    pub change: Change,
    /// Target in words: `41849 vllm-worker`, `gpu0`, `group team-a`.
    pub target: String,
    /// Start time of the target process in clock ticks.
    pub target_start_time: Option<u64>,
    /// Reason in the user's words.
    pub reason: Option<String>,
    /// Program that makes the edit.
    pub place: Place,
    /// Generation that the segments must have, else the edit is refused. `None` accepts any.
    pub expected_generation: Option<u64>,
}

impl EditRequest {
    /// Makes a request without a reason, for any generation.
    pub fn new(change: Change, target: impl Into<String>, place: Place) -> Self {
        Self {
            change,
            target: target.into(),
            target_start_time: None,
            reason: None,
            place,
            expected_generation: None,
        }
    }

    /// Makes a request for a process. The log keeps its start time, because another process may get its pid.
    pub fn of_process(
        change: Change,
        target: impl Into<String>,
        start_time: u64,
        place: Place,
    ) -> Self {
        Self {
            target_start_time: Some(start_time),
            ..Self::new(change, target, place)
        }
    }

    /// Sets the reason.
    pub fn because(mut self, reason: Option<String>) -> Self {
        self.reason = reason;
        self
    }

    /// Returns an error if the reason is too long or has a hidden character, because other users will read it.
    pub fn fault(&self) -> Option<EditError> {
        let reason = self.reason.as_deref().unwrap_or_default();
        let why = match text::visible(reason) {
            Err(error) => error.to_string(),
            Ok(()) if reason.len() > LONGEST_REASON => {
                format!("must have {LONGEST_REASON} bytes at most")
            }
            Ok(()) => return None,
        };
        Some(EditError::Invalid {
            field: "reason",
            why,
        })
    }
}

/// Returns the new values in few words, as the audit shows them: `quota 32GiB`, `weight=200 cap=30`.
pub fn summary(change: &Change) -> String {
    match change {
        Change::ProcessQuota { value, until, .. } => {
            let span = until.map_or("", |_| A_WHILE);
            format!("quota {value}{span}")
        }
        Change::ProcessQuotas { quotas, .. } => all(quotas),
        Change::ProcessShare { share, .. } => words(share.words()),
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
        Change::DeviceMemory { settings, .. } => words(settings.words()),
        Change::Group { remove: true, .. } => "removed".into(),
        Change::Group { settings, .. } if settings.words().is_empty() => "without settings".into(),
        Change::Group { settings, .. } => words(settings.words()),
        Change::Rule { rule: None, .. } => "no rule".into(),
        Change::Rule {
            rule: Some(rule), ..
        } => super::rule::summary(rule),
        Change::Trace { on: None, .. } => "trace off".into(),
        Change::Trace {
            on: Some(records), ..
        } => format!("trace on, room for {records} records"),
        Change::Label { label, .. } if label.is_empty() => "no name".into(),
        Change::Label { label, .. } => format!("name {label}"),
    }
}

/// Returns the values that the edit which `restore` undoes replaced. Of a setting that no operator had set it is the value that
/// was in force in `then`, with its source: `quota 3GiB (launch)`.
pub fn before(restore: &Change, then: &Snapshot) -> String {
    let process = |slot: &SlotId| then.processes.iter().find(|process| process.slot == *slot);
    let replaced = match restore {
        Change::ProcessQuota {
            slot,
            device,
            value: QuotaValue::Inherit,
            ..
        } => process(slot).and_then(|process| quota_in_force(process, *device)),
        Change::ProcessShare { slot, share } => {
            process(slot).map(|process| words(shares_in_force(share.words(), process)))
        }
        Change::Policy {
            device,
            policy: None,
            ..
        } => {
            let of_device = then.devices.iter().find(|one| Some(one.uuid) == *device);
            let policy = match (device, of_device) {
                (Some(_), None) => None,
                (Some(_), Some(device)) => Some(device.policy.0),
                (None, _) => Some(then.default_policy.unwrap_or_default()),
            };
            policy.map(|policy: LockPolicy| format!("policy {policy}"))
        }
        Change::Group { remove: true, .. } => Some("no group".into()),
        _ => None,
    };
    replaced.unwrap_or_else(|| summary(restore))
}

/// Returns the quota in force on a device of a process, or on all of them if it is the same.
fn quota_in_force(process: &ProcessView, device: Option<u8>) -> Option<String> {
    let mut quotas = process
        .devices
        .iter()
        .filter(|holding| device.is_none_or(|entry| holding.entry == entry))
        .map(|holding| holding.quota);
    let Quota { bytes, source } = quotas.next()?;
    let value = bytes.map_or(QuotaValue::Unlimited, QuotaValue::Bytes);
    quotas
        .all(|quota| quota.bytes == bytes)
        .then(|| format!("quota {value}{}", of(source)))
}

/// Puts the value in force in place of each value that is inherited. A boost replaces the priority.
fn shares_in_force(
    mut words: Vec<(&'static str, Set<String>)>,
    process: &ProcessView,
) -> Vec<(&'static str, Set<String>)> {
    let typed = process.share.typed();
    for (word, set) in words
        .iter_mut()
        .filter(|(_, set)| matches!(set, Set::Inherit))
    {
        let row = if *word == "boost" { "priority" } else { *word };
        let mut rows = typed.iter();
        if let Some((_, value, source)) = rows.find(|(about, ..)| about.word == row) {
            (*word, *set) = (row, Set::To(format!("{value}{}", of(*source))));
        }
    }
    words
}

/// Returns the source of a value in brackets, if it is not an operator.
fn of(source: Source) -> String {
    match source {
        Source::Operator => String::new(),
        source => format!(" ({})", source.word()),
    }
}

/// Returns the quota for every device, then those of single devices by the process's own numbers.
fn all(quotas: &[OneQuota]) -> String {
    let told = |one: &OneQuota| {
        let span = one.until.map_or("", |_| A_WHILE);
        format!("{}{span}", one.value)
    };
    let every = quotas.iter().find(|one| one.device.is_none());
    let mut words = format!("quota {}", every.map_or(INHERIT.into(), told));
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
    match change {
        Change::ProcessShare { share, .. } => share.ends(),
        Change::DeviceMemory { settings, .. } => settings.ends(),
        Change::Group {
            settings,
            remove: false,
            ..
        } => settings.ends(),
        _ => Vec::new(),
    }
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

/// Returns `key=value` of each setting. The end is not shown, because it is on the segments' clock, which has no meaning for
/// a reader.
fn words(words: Vec<(&str, Set<String>)>) -> String {
    let word = |(key, set)| match (key, set) {
        ("boost", Set::To(priority)) => format!("boost={priority}{A_WHILE}"),
        (_, Set::To(value)) => format!("{key}={value}"),
        (_, Set::For(value, _)) => {
            format!("{key}={}{A_WHILE}", value.as_deref().unwrap_or(INHERIT))
        }
        (_, Set::Inherit | Set::Keep) => format!("{key}={INHERIT}"),
    };
    words.into_iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use shm_layout::{Boost, GroupEdit, OnFull, ProcessDeviceView, ShareEdit, Until};

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
                settings: GroupEdit {
                    memory: Set::Inherit,
                    cap: Set::To(30),
                    ..GroupEdit::default()
                },
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
                "weight=200 priority=inherit paused=yes boost=-3 for a while on-full=wait=10m",
                "policy off order=fair idle=auto max-hold=10s grace=200ms sync-skips=0",
                "policy inherit",
                "limit none",
                "memory=inherit cap=30%",
            ]
        );
    }

    #[test]
    fn what_an_edit_replaced_is_the_value_that_was_in_force() {
        let slot = SlotId { index: 3, epoch: 9 };
        let mut process = ProcessView {
            slot,
            ..ProcessView::default()
        };
        process.share.priority = -5;
        process.devices = vec![ProcessDeviceView {
            entry: 1,
            quota: Quota {
                bytes: Some(3 << 30),
                source: Source::LaunchEnv,
            },
            ..ProcessDeviceView::default()
        }];
        let then = Snapshot {
            processes: vec![process],
            ..Snapshot::default()
        };
        let quota = |value| Change::ProcessQuota {
            slot,
            device: Some(1),
            value,
            until: None,
        };
        let share = |share| Change::ProcessShare { slot, share };
        let boost = share(ShareEdit {
            boost: Set::Inherit,
            ..ShareEdit::default()
        });
        let told = [
            (quota(QuotaValue::Inherit), "quota 3GiB (launch)"),
            (quota(QuotaValue::Percent(25)), "quota 25%"),
            (boost, "priority=-5 (default)"),
            (
                Change::Policy {
                    device: None,
                    policy: None,
                    until: None,
                },
                "policy off order=fair idle=auto max-hold=10s grace=200ms sync-skips=0",
            ),
        ];
        for (old, words) in told {
            assert_eq!(before(&old, &then), words);
            let nothing = Snapshot::default();
            if !matches!(old, Change::Policy { .. }) {
                assert_eq!(
                    before(&old, &nothing),
                    summary(&old),
                    "the process has ended"
                );
            }
        }
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
