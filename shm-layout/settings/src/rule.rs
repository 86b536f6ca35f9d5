//! A rule: settings for every process that matches, also for one that starts later.

use crate::table::SettingValues;

/// A rule: the processes that it matches, and their settings. Only the first rule that matches a process applies.
///
/// A criterion that is not given matches all. In a text `*` stands for any number of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Rule {
    /// Name, 1 to 31 bytes.
    pub name: String,
    /// The processes of this user.
    pub uid: Option<u32>,
    /// Group that the processes joined.
    pub group: Option<String>,
    /// Executable: a path, or a file name if it has no `/`.
    pub executable: Option<String>,
    /// Container of the processes.
    pub container: Option<String>,
    /// Label of the processes.
    pub label: Option<String>,
    /// Settings of the processes. If the launch also gives memory or a cap, the lesser applies.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub limits: SettingValues,
}

/// The properties of a process that rules match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// User id.
    pub uid: u32,
    /// Group.
    pub group: Option<String>,
    /// The path of its executable.
    pub executable: String,
    /// Container; empty for none.
    pub container: String,
    /// Label.
    pub label: String,
}

impl Rule {
    /// Returns true if the rule matches such a process.
    pub fn matches(&self, of: &Traits) -> bool {
        let file = || of.executable.rsplit('/').next().unwrap_or_default();
        let executable = |pattern: &String| match pattern.contains('/') {
            true => is_like(pattern, &of.executable),
            false => is_like(pattern, file()),
        };
        let like = |pattern: &Option<String>, text: &str| {
            pattern
                .as_ref()
                .is_none_or(|pattern| is_like(pattern, text))
        };
        self.uid.is_none_or(|uid| uid == of.uid)
            && like(&self.group, of.group.as_deref().unwrap_or_default())
            && self.executable.as_ref().is_none_or(executable)
            && like(&self.container, &of.container)
            && like(&self.label, &of.label)
    }
}

/// Returns true if a text matches a pattern in which `*` stands for any number of bytes. The time is at most the product of
/// both lengths.
fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut seen) = (0, 0);
    // Where to go on when what follows a star does not fit: behind it, and one byte later in the text.
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, seen));
                at += 1;
            }
            Some(byte) if *byte == text[seen] => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((behind, from)) = star else {
                    return false;
                };
                star = Some((behind, from + 1));
                (at, seen) = (behind, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_number_of_characters() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "python"),
            ("python*", "python3.12"),
            ("*/bin/*", "/opt/bin/serve"),
            ("a*b*c", "aXbXbXc"),
            ("**c", "abc"),
        ] {
            assert!(is_like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a*b", "a"),
            ("python", "python3"),
            ("*b", "abc"),
        ] {
            assert!(!is_like(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn every_criterion_that_is_given_must_match() {
        let of = Traits {
            uid: 1000,
            group: Some("team".into()),
            executable: "/usr/bin/python3.12".into(),
            container: "web".into(),
            label: "train-7b".into(),
        };
        let some = |text: &str| Some(text.to_owned());
        let mut rule = Rule::default();
        assert!(rule.matches(&of), "no criterion is for all");
        rule = Rule {
            uid: Some(1000),
            group: some("team"),
            executable: some("python*"),
            container: some("web"),
            label: some("train-*"),
            ..rule
        };
        assert!(rule.matches(&of));
        for other in [
            Rule {
                uid: Some(0),
                ..rule.clone()
            },
            Rule {
                group: some("others"),
                ..rule.clone()
            },
            Rule {
                executable: some("/bin/python*"),
                ..rule.clone()
            },
            Rule {
                container: some(""),
                ..rule.clone()
            },
            Rule {
                label: some("serve*"),
                ..rule.clone()
            },
        ] {
            assert!(!other.matches(&of), "{other:?}");
        }
        let by_path = Rule {
            executable: some("/usr/bin/*"),
            ..rule
        };
        assert!(by_path.matches(&of));
    }
}
