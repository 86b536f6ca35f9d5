//! A rule: settings for every process that matches, also for one that starts later.

use crate::table::SettingValues;

/// Which processes, and what holds for them. The first rule that matches a process holds, and no other.
///
/// A criterion that is not given matches all. In a text `*` stands for any number of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Rule {
    /// What it is called, 1 to 31 bytes.
    pub name: String,
    /// The processes of this user.
    pub uid: Option<u32>,
    /// Those that joined this group.
    pub group: Option<String>,
    /// Those of this executable: a path, or a file's name where there is no `/` in it.
    pub executable: Option<String>,
    /// Those in this container.
    pub container: Option<String>,
    /// Those with this label.
    pub label: Option<String>,
    /// What holds for them. Of memory and cap the lesser holds where the launch gives one too.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub limits: SettingValues,
}

/// What of a process a rule looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub group: Option<String>,
    /// The path of its executable.
    pub executable: String,
    /// Its container; empty for none.
    pub container: String,
    /// Its label.
    pub label: String,
}

impl Rule {
    /// Whether the rule is for such a process.
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

/// Whether a text is like a pattern in which `*` stands for any number of bytes. It takes no longer than the product of both.
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
