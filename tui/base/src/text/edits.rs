//! Description of an edit's change, from the words for the old and the new settings.

use shm_layout::text::INHERIT;
use shm_layout::{LockPolicy, PolicyKind};

use super::policy;

/// Suffix that marks an edit which expires. Callers that know its end replace the suffix by the end.
pub const A_WHILE: &str = " for a while";

/// Returns only the difference behind the setting's name: `quota none -> 32GiB`.
pub fn from_to(old: Option<&str>, new: &str, arrow: &str) -> String {
    let new = new.replace(A_WHILE, "");
    let Some(old) = old.map(|old| old.replace(A_WHILE, "")) else {
        return new;
    };
    let (mut gone, mut come) = (words(&old), words(&new));
    let head = match (gone.first(), come.first()) {
        (Some(a), Some(b)) if a == b && !a.contains('=') => format!("{a} "),
        _ => String::new(),
    };
    let after = come.clone();
    come.retain(|word| !gone.contains(word));
    gone.retain(|word| !after.contains(word));
    if gone.is_empty() && come.is_empty() {
        return format!("{new}, as before");
    }
    // A setting with both values is named once.
    let mut pieces = Vec::new();
    come.retain(|word| {
        let pair = setting(word).and_then(|(key, value)| {
            let of_key = |old: &String| {
                setting(old)
                    .filter(|(other, _)| *other == key)
                    .map(|(_, value)| value.to_owned())
            };
            let at = gone.iter().position(|old| of_key(old).is_some())?;
            Some(match of_key(&gone.remove(at))?.as_str() {
                // It was not set before.
                INHERIT => format!("{key} {value}"),
                old => format!("{key} {old} {arrow} {value}"),
            })
        });
        let is_alone = pair.is_none();
        pieces.extend(pair);
        is_alone
    });
    let alone = match (gone.join(" "), come.join(" ")) {
        (gone, come) if gone.is_empty() => come,
        (gone, come) if come.is_empty() => format!("{gone} {arrow} none"),
        (gone, come) => format!("{gone} {arrow} {come}"),
    };
    pieces.splice(..0, (!alone.is_empty()).then_some(alone));
    format!("{head}{}", pieces.join(", "))
}

/// Returns the policy that the words of a setting name, if they name one.
pub fn policy(words: &str) -> Option<LockPolicy> {
    let words = words.trim_end_matches(A_WHILE).strip_prefix("policy ")?;
    words.parse().ok()
}

/// Returns the difference as [`from_to`] does; policies are told by what each of them does.
pub fn in_words(old: Option<&str>, new: &str, arrow: &str) -> String {
    let told = |words| policy(words).map(|policy| policy::in_words(&policy));
    match (old, old.and_then(told), told(new)) {
        (None, _, Some(new)) => new,
        (_, Some(old), Some(new)) if old != new => format!("{old} {arrow} {new}"),
        _ => from_to(old, new, arrow),
    }
}

/// Returns the new value, and behind it the old one, which a narrow screen may cut: `quota 32GiB (was: none)`. Policies are told by
/// what each of them does.
pub fn new_first(old: Option<&str>, new: &str) -> String {
    let told = |words: &str| match policy(words) {
        Some(policy) if policy.kind == PolicyKind::Off => policy.kind.to_string(),
        Some(policy) => policy::in_words(&policy),
        None => words.replace(A_WHILE, ""),
    };
    let now = told(new);
    let Some(was) = old.map(told) else {
        return now;
    };
    if was == now {
        return from_to(old, new, "to");
    }
    // The setting's name is not repeated. The words of a policy begin with none.
    let is_policy = old.and_then(policy).is_some();
    let value = match (was.split_once(' '), now.split_once(' ')) {
        (Some((name, value)), Some((same, _)))
            if name == same && !name.contains('=') && !is_policy =>
        {
            value
        }
        _ => was.as_str(),
    };
    format!("{now} (was: {value})")
}

/// Describes an undo. `restored` are the values from before the edit that is undone, which are told where the undo makes them
/// inherited again.
pub fn undone(target: &str, restored: Option<&str>, old: Option<&str>, new: &str) -> String {
    let new = restored.filter(|_| new.contains(INHERIT)).unwrap_or(new);
    format!("undone: {target}: {}", new_first(old, new))
}

/// Divides a text into words; a source in brackets belongs to the value before it.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match words.last_mut() {
            Some(last) if word.starts_with('(') => *last += &format!(" {word}"),
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Returns the key and the value of `key=value`. A boost is a priority for a while.
fn setting(word: &str) -> Option<(&str, &str)> {
    let (key, value) = word.split_once('=')?;
    Some((if key == "boost" { "priority" } else { key }, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_told_by_what_they_do_unless_only_other_settings_differ() {
        let told = |old, new| in_words(Some(old), new, "to");
        assert_eq!(
            told(
                "policy timeslice=5ms order=fair grace=1s for a while",
                "policy overlap order=priority grace=1s"
            ),
            "turns of 5ms, shares by weight to overlap, urgent first"
        );
        assert_eq!(
            told("policy always grace=1s", "policy always grace=2s"),
            "policy grace 1s to 2s"
        );
        assert_eq!(told("quota none", "quota 1GiB"), "quota none to 1GiB");
    }

    #[test]
    fn the_new_value_is_told_before_the_old_one() {
        let told = |old, new| new_first(Some(old), new);
        let (slices, off) = ("policy timeslice=5ms grace=1s", "policy off");
        let slices_told = "turns of 5ms, shares by weight";
        assert_eq!(told(slices, off), format!("off (was: {slices_told})"));
        assert_eq!(
            told(slices, "policy timeslice=2ms"),
            format!("turns of 2ms, shares by weight (was: {slices_told})")
        );
        assert_eq!(
            told(slices, "policy timeslice=5ms grace=2s"),
            "policy grace 1s to 2s"
        );
        assert_eq!(
            told("trace off", "trace on, room for 262144 records"),
            "trace on, room for 262144 records (was: off)"
        );
        assert_eq!(
            told("weight=100", "weight=200 for a while"),
            "weight=200 (was: weight=100)"
        );
        assert_eq!(told("quota none", "quota none"), "quota none, as before");
        assert_eq!(new_first(None, "quota none"), "quota none");
        let back = |restored| undone("all GPUs", restored, Some(slices), "policy inherit");
        assert_eq!(
            back(Some(off)),
            format!("undone: all GPUs: off (was: {slices_told})")
        );
        assert_eq!(
            back(None),
            format!("undone: all GPUs: policy inherit (was: {slices_told})")
        );
    }

    #[test]
    fn only_what_differs_is_told() {
        for (old, new, told) in [
            (Some("quota none"), "quota 32GiB", "quota none -> 32GiB"),
            (
                Some("quota none"),
                "quota 32GiB for a while",
                "quota none -> 32GiB",
            ),
            (None, "quota 32GiB", "quota 32GiB"),
            (
                Some("policy overcommit=inherit"),
                "policy overcommit=on",
                "policy overcommit on",
            ),
            (
                Some("policy off order=fair grace=1s"),
                "policy timeslice=5ms order=fair grace=1s",
                "policy off -> timeslice=5ms",
            ),
            (
                Some("weight=100 cap=30"),
                "weight=200 cap=30",
                "weight 100 -> 200",
            ),
            (
                Some("policy timeslice=2ms order=fair grace=1s"),
                "policy overlap order=priority grace=1s",
                "policy timeslice=2ms -> overlap, order fair -> priority",
            ),
            (
                Some("quota 3GiB (launch)"),
                "quota 4GiB",
                "quota 3GiB (launch) -> 4GiB",
            ),
            (
                Some("priority=0 (default)"),
                "boost=10 for a while",
                "priority 0 (default) -> 10",
            ),
            (Some("quota 1GiB"), "quota 1GiB", "quota 1GiB, as before"),
        ] {
            assert_eq!(from_to(old, new, "->"), told);
        }
    }
}
