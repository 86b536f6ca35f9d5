//! An alert: one fault, as a sentence.

use gpushare_sample::Who;

/// The severity of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A process is harmed.
    Warning,
    /// Information that needs no action.
    Note,
}

impl Severity {
    /// Returns the word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// A fault and the action that helps against it.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// The severity.
    pub severity: Severity,
    /// The rule's name, as in JSON.
    pub kind: &'static str,
    /// The word in front of the sentence on screen.
    pub word: &'static str,
    /// The process that the alert is about.
    pub who: Option<Who>,
    /// The device that the alert is about.
    pub gpu: Option<usize>,
    /// The fault, described.
    pub sentence: String,
    /// The action that helps.
    pub remedy: Option<Remedy>,
    /// The time since which the fault exists.
    pub since_ns: u64,
    /// The time at which the fault was last found.
    pub seen_ns: u64,
}

/// The action that helps against an alert.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// The key that starts the action, if one does.
    pub key: Option<char>,
    /// The action in few words.
    pub text: String,
}

impl Remedy {
    /// Returns a remedy that a key starts.
    pub fn key(key: char, text: impl Into<String>) -> Option<Self> {
        Some(Self {
            key: Some(key),
            text: text.into(),
        })
    }

    /// Returns a remedy outside the dashboard.
    pub fn advice(text: impl Into<String>) -> Option<Self> {
        Some(Self {
            key: None,
            text: text.into(),
        })
    }

    /// Writes the remedy as the screen shows it: `[e] raise it`, with the label that `letter` returns for the key.
    pub fn shown(&self, letter: impl Fn(char) -> String) -> String {
        match self.key {
            Some(key) => format!("[{}] {}", letter(key), self.text),
            None => self.text.clone(),
        }
    }
}

/// The name of alerts that rules of the settings make.
pub const OWN: &str = "rule";

/// Time for which an alert stays after it was last found, so that it does not flicker.
const STAYS_NS: u64 = 5_000_000_000;

/// Merges the alerts found now with the previous ones: each keeps its age, and none flickers. `lives` reports whether a
/// process still exists.
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
