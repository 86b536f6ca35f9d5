//! One thing that is wrong, as a sentence.

use gpushare_sample::Who;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A process is harmed.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// How bad.
    pub severity: Severity,
    /// The rule's name, as in JSON.
    pub kind: &'static str,
    /// The word in front of the sentence on screen.
    pub word: &'static str,
    /// Its target.
    pub who: Option<Who>,
    /// Which device it is about.
    pub gpu: Option<usize>,
    /// What is wrong.
    pub sentence: String,
    /// What helps.
    pub remedy: Option<Remedy>,
    /// Since when it is so.
    pub since_ns: u64,
    /// When it was last found to be so.
    pub seen_ns: u64,
}

/// What helps against an alert.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// The key that leads there, if one does.
    pub key: Option<char>,
    /// What to do, in few words.
    pub text: String,
}

impl Remedy {
    /// Done by a key.
    pub fn key(key: char, text: impl Into<String>) -> Option<Self> {
        Some(Self {
            key: Some(key),
            text: text.into(),
        })
    }

    /// Done elsewhere.
    pub fn advice(text: impl Into<String>) -> Option<Self> {
        Some(Self {
            key: None,
            text: text.into(),
        })
    }

    /// As the screen shows it: `[e] raise it`, with what `letter` says is printed on that key.
    pub fn shown(&self, letter: impl Fn(char) -> String) -> String {
        match self.key {
            Some(key) => format!("[{}] {}", letter(key), self.text),
            None => self.text.clone(),
        }
    }
}

/// The name of alerts that rules of the settings make.
pub const OWN: &str = "rule";

/// An alert stays for so long after it was last found: what comes and goes with each look helps no person.
const STAYS_NS: u64 = 5_000_000_000;

/// The alerts found now with those of a moment ago: each keeps its age, and none flickers. `lives` says whether a process is
/// still there.
pub fn settled(
    found: Vec<Alert>,
    before: &[Alert],
    now_ns: u64,
    lives: impl Fn(Who) -> bool,
) -> Vec<Alert> {
    let same = |a: &Alert, b: &Alert| (a.kind, a.who, a.gpu) == (b.kind, b.who, b.gpu);
    let mut alerts = found;
    for alert in &mut alerts {
        let earlier = before.iter().find(|old| same(old, alert));
        alert.since_ns = earlier.map_or(now_ns, |old| old.since_ns.min(now_ns));
        alert.seen_ns = now_ns;
    }
    let stays = |old: &&Alert| {
        let fresh = now_ns.saturating_sub(old.seen_ns) < STAYS_NS && old.seen_ns <= now_ns;
        fresh && old.who.is_none_or(&lives)
    };
    for old in before.iter().filter(stays) {
        if !alerts.iter().any(|alert| same(alert, old)) {
            alerts.push(old.clone());
        }
    }
    alerts
}
