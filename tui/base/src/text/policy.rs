//! A lock policy in a few words of a user.

use shm_layout::{LockPolicy, PolicyKind};

use super::units::format_duration;

/// Describes what decides who has the device: `turns of 5ms, shares by weight`. The other settings are left out.
pub fn in_words(policy: &LockPolicy) -> String {
    let kind = match policy.kind {
        PolicyKind::Off => return "off: nobody waits, gpushare only counts".to_owned(),
        PolicyKind::HwTimeslice(ns) => {
            return format!(
                "the card's own slices of {}, by weight",
                format_duration(ns)
            );
        }
        PolicyKind::Overlap(_) => "overlap".to_owned(),
        PolicyKind::Always => "turns until the work is done".to_owned(),
        PolicyKind::Launches(1) => "turns of 1 launch".to_owned(),
        PolicyKind::Launches(count) => format!("turns of {count} launches"),
        PolicyKind::Timeslice(ns) => format!("turns of {}", format_duration(ns)),
    };
    format!("{kind}, {}", policy.order.in_words())
}

/// Returns the typed words of a policy after its kind: the order, and the settings that differ from their defaults.
pub fn settings(policy: &LockPolicy) -> Vec<String> {
    let defaults = LockPolicy {
        kind: policy.kind,
        ..LockPolicy::default()
    }
    .to_string();
    let is_default = |word: &str| defaults.split(' ').any(|default| default == word);
    let words = policy.to_string();
    let words = words.split(' ').skip(1);
    words
        .filter(|word| is_order(word) || !is_default(word))
        .map(str::to_owned)
        .collect()
}

/// Reports whether a word of a policy is its order.
pub fn is_order(word: &str) -> bool {
    word.starts_with("order=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_told_without_its_settings() {
        for (typed, told) in [
            ("off", "off: nobody waits, gpushare only counts"),
            ("timeslice=5ms grace=1s", "turns of 5ms, shares by weight"),
            (
                "hw-timeslice=4ms",
                "the card's own slices of 4ms, by weight",
            ),
            ("overlap=1ms order=priority", "overlap, urgent first"),
            (
                "launches=7 order=fifo",
                "turns of 7 launches, first come, first served",
            ),
        ] {
            let policy = typed.parse().expect("a policy");
            assert_eq!(in_words(&policy), told);
        }
    }
}
