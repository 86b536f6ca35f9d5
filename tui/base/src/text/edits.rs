//! Description of an edit's change, from the words for the old and the new settings.

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
            Some(format!(
                "{key} {} {arrow} {value}",
                of_key(&gone.remove(at))?
            ))
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
