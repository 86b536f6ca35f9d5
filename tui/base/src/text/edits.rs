//! Description of an edit's change, from the words for the old and the new settings.

use shm_layout::LockPolicy;
use shm_layout::text::INHERIT;

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
