//! Description of an edit's change, from the words for the old and the new settings.

/// Suffix that marks an edit which expires. Callers that know its end replace the suffix by the end.
pub const A_WHILE: &str = " for a while";

/// Returns only the difference behind the setting's name: `quota none -> 32GiB`.
pub fn from_to(old: Option<&str>, new: &str, arrow: &str) -> String {
    let new = new.replace(A_WHILE, "");
    let Some(old) = old.map(|old| old.replace(A_WHILE, "")) else {
        return new;
    };
    let (before, after): (Vec<&str>, Vec<&str>) =
        (old.split(' ').collect(), new.split(' ').collect());
    let head = match (before.first(), after.first()) {
        (Some(a), Some(b)) if a == b && !a.contains('=') => format!("{a} "),
        _ => String::new(),
    };
    let without = |words: &[&str], others: &[&str]| {
        let words = words.iter().filter(|word| !others.contains(word));
        words.copied().collect::<Vec<_>>().join(" ")
    };
    let (gone, come) = (without(&before, &after), without(&after, &before));
    match (gone.as_str(), come.as_str()) {
        ("", "") => format!("{new}, as before"),
        (gone, "") => format!("{head}{gone} {arrow} none"),
        ("", come) => format!("{head}{come}"),
        (gone, come) => format!("{head}{gone} {arrow} {come}"),
    }
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
                "weight=100 -> weight=200",
            ),
            (Some("quota 1GiB"), "quota 1GiB", "quota 1GiB, as before"),
        ] {
            assert_eq!(from_to(old, new, "->"), told);
        }
    }
}
