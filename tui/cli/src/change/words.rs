//! The result of an edit in the words of a user: `train (pid 28700): resumed`.

use shm_layout::text::INHERIT;
use shm_layout::{Change, LockPolicy, Set, ShareEdit};

use gpushare_base::text::edits::A_WHILE;
use gpushare_base::text::plain::plain;
use gpushare_base::text::policy::{is_order, settings};
use gpushare_control::change::summary;
use gpushare_sample::{ProcessSample, Sample};

/// Returns the target of an edit with the process's name first: `undid edit 3 on train (pid 28700)`.
pub fn title(target: &str, change: &Change, sample: &Sample) -> String {
    let process = change.slot().and_then(|slot| sample.process(slot));
    let name_first = |process: &ProcessSample| {
        let name = Some(&process.identity.label).filter(|label| !label.is_empty())?;
        let titled = format!("{name} (pid {})", process.pid?);
        Some(target.replacen(&process.pid_and_name(), &titled, 1))
    };
    let named = process.and_then(name_first);
    plain(named.as_deref().unwrap_or(target)).into_owned()
}

/// Returns the new values, and the old ones where they differ: `weight=200 (was: weight=100)`.
pub fn result(new: &Change, old: &Change, before: &str) -> String {
    compared(words(new), new, old, before)
}

/// Returns the result of an undo. `restored` are the values from before the edit, which are told where the undo makes them
/// inherited again.
pub fn undone(new: &Change, old: &Change, before: &str, restored: &str) -> String {
    let told = words(new);
    let told = match told.contains(INHERIT) {
        true => restored.to_owned(),
        false => told,
    };
    compared(told, new, old, before)
}

fn compared(told: String, new: &Change, old: &Change, before: &str) -> String {
    if let Some(word) = switched(new) {
        return word;
    }
    let was = match old {
        Change::Policy { .. } => words(old),
        _ => before.to_owned(),
    };
    match told == was {
        true => format!("{told}, as before"),
        false => format!("{told} (was: {})", without_subject(&was, &told)),
    }
}

/// Returns the word for an edit that only pauses, resumes, pins or unpins.
fn switched(change: &Change) -> Option<String> {
    let Change::ProcessShare { share, .. } = change else {
        return None;
    };
    let only = |part: ShareEdit| part == *share;
    let pins = only(ShareEdit {
        pinned: share.pinned,
        ..ShareEdit::default()
    });
    let pauses = only(ShareEdit {
        paused: share.paused,
        evict: share.evict,
        ..ShareEdit::default()
    });
    if pins {
        return switch(&share.pinned, "pinned", "unpinned");
    }
    let evicted = match &share.evict {
        Set::To(true) | Set::For(Some(true), _) => ", its memory moves to the host",
        _ => "",
    };
    let word = match &share.paused {
        // No launch starts a process paused.
        Set::Inherit => Some("resumed".to_owned()),
        paused => switch(paused, "paused", "resumed"),
    };
    let word = word.filter(|_| pauses)?;
    Some(word + evicted)
}

fn switch(set: &Set<bool>, on: &str, off: &str) -> Option<String> {
    Some(match set {
        Set::To(true) => on.to_owned(),
        Set::To(false) => off.to_owned(),
        Set::For(Some(true), _) => format!("{on}{A_WHILE}"),
        Set::For(Some(false), _) => format!("{off}{A_WHILE}"),
        _ => return None,
    })
}

fn words(change: &Change) -> String {
    match change {
        Change::Policy {
            policy: Some(policy),
            until,
            ..
        } => format!("{}{}", of_policy(policy), until.map_or("", |_| A_WHILE)),
        Change::Policy {
            policy: None,
            device: None,
            ..
        } => "no policy".into(),
        Change::Policy { policy: None, .. } => "the policy of all GPUs".into(),
        other => summary(other),
    }
}

/// Returns a policy with the order in words, and the other fields that differ from their defaults.
fn of_policy(policy: &LockPolicy) -> String {
    let kind = policy.kind.to_string();
    if !policy.kind.is_gated() {
        return kind;
    }
    let settings = settings(policy);
    let others = settings.iter().map(String::as_str);
    let parts = [kind.as_str(), policy.order.in_words()]
        .into_iter()
        .chain(others.filter(|word| !is_order(word)));
    parts.collect::<Vec<_>>().join(", ")
}

/// Leaves out the first word of the old values if the new ones begin with it: the setting's name.
fn without_subject<'w>(was: &'w str, told: &str) -> &'w str {
    match (was.split_once(' '), told.split_once(' ')) {
        (Some((name, value)), Some((same, _))) if name == same && !name.contains(['=', ',']) => {
            value
        }
        _ => was,
    }
}

#[cfg(test)]
mod tests {
    use shm_layout::{QuotaValue, SlotId};

    use super::*;

    #[test]
    fn an_edit_is_told_as_a_person_would_tell_it() {
        let slot = SlotId { index: 3, epoch: 9 };
        let share = |share| Change::ProcessShare { slot, share };
        let pause = |paused| {
            share(ShareEdit {
                paused: Set::To(paused),
                evict: Set::Inherit,
                ..ShareEdit::default()
            })
        };
        let pin = |pinned| {
            share(ShareEdit {
                pinned: Set::To(pinned),
                ..ShareEdit::default()
            })
        };
        let weight = |weight| {
            share(ShareEdit {
                weight: Set::To(weight),
                ..ShareEdit::default()
            })
        };
        let quota = |bytes| Change::ProcessQuota {
            slot,
            device: None,
            value: QuotaValue::Bytes(bytes),
            until: None,
        };
        let policy = |text: &str| Change::Policy {
            device: None,
            policy: Some(text.parse().expect("a policy")),
            until: None,
        };
        for (new, old, told) in [
            (pause(true), pause(false), "paused"),
            (pause(false), pause(true), "resumed"),
            (pin(true), pin(false), "pinned"),
            (weight(200), weight(100), "weight=200 (was: weight=100)"),
            (quota(2 << 30), quota(1 << 30), "quota 2GiB (was: 1GiB)"),
            (quota(1 << 30), quota(1 << 30), "quota 1GiB, as before"),
            (
                policy("overlap order=priority"),
                policy("off"),
                "overlap, urgent first (was: off)",
            ),
            (
                policy("timeslice=5ms grace=1s"),
                policy("overlap"),
                "timeslice=5ms, shares by weight, grace=1s (was: overlap, shares by weight)",
            ),
        ] {
            assert_eq!(result(&new, &old, &summary(&old)), told);
        }
        let resumed = share(ShareEdit {
            paused: Set::Inherit,
            ..ShareEdit::default()
        });
        assert_eq!(
            undone(&resumed, &pause(true), "paused=yes", "paused=no"),
            "resumed"
        );
        let before = |value| Change::ProcessQuota {
            slot,
            device: None,
            value,
            until: None,
        };
        let (none, set) = (before(QuotaValue::Inherit), quota(2 << 30));
        let told = |restored| undone(&none, &set, "quota 2GiB", restored);
        assert_eq!(
            told("quota 1GiB (launch)"),
            "quota 1GiB (launch) (was: 2GiB)"
        );
        let told = undone(&quota(4 << 30), &set, "quota 2GiB", "of no meaning");
        assert_eq!(told, "quota 4GiB (was: 2GiB)");
    }
}
