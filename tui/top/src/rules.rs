//! Rules of the settings file: a condition, the time for which it must hold, and the action that follows.
//!
//! The condition is about rows of the process table (`when`, a filter), about alerts (`alert`), or about both.
//! [`watch`] decides when a rule holds, [`action`] prepares its action, [`runner`] runs it in the background. A change
//! made by a rule expires by itself and is made at most a few times an hour. It is never made over a temporary edit of
//! a user, and never again once a user undid it.

use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

pub mod action;
pub mod runner;
pub mod watch;

use gpushare_base::text::units::parse_duration;
use gpushare_control::policy;
use gpushare_observe::filter::Filter;
use gpushare_observe::finding::OWN;
use gpushare_observe::findings;

/// The keys below `[[alert]]`, each with an example, for the manual. A test compares it with [`Written`].
pub const SETTINGS: [(&str, &str, &str); 13] = [
    (
        "name",
        "\"starved\"",
        "what the rule is called; without a name, its number",
    ),
    (
        "when",
        "\"wait > 80% user=alice\"",
        "a filter: the processes that the rule is about",
    ),
    (
        "alert",
        "\"starving\"",
        "an alert by its name in JSON; with when, only of the processes that it lets through",
    ),
    (
        "for",
        "\"30s\"",
        "for how long it must be so without a break; 0s at once",
    ),
    (
        "again",
        "\"5m\"",
        "the least time until the rule acts again for the same process",
    ),
    ("bell", "true", "rings the terminal's bell"),
    (
        "notify",
        "true",
        "asks the terminal for a desktop notification (OSC 9, or OSC 777 where that is known)",
    ),
    (
        "command",
        "[\"logger\", \"-t\", \"gpushare\", \"starved\"]",
        "starts a program, without a shell; ALERT_RULE, ALERT_SENTENCE, ALERT_HOST, ALERT_GPU, ALERT_UUID are in its environment, and each column of the process as ROW_PID, ROW_NAME, …",
    ),
    (
        "shell",
        "\"curl -m 5 -d \\\"$ALERT_SENTENCE\\\" https://example.org/hook\"",
        "the same with /bin/sh -c; write variables in quotes",
    ),
    (
        "limit",
        "\"10s\"",
        "after this long the program is ended; at most 5m",
    ),
    (
        "remedy",
        "\"boost 5\"",
        "an edit: quota SIZE, boost PRIORITY or policy WORDS, recorded and undone as any other",
    ),
    (
        "expires",
        "\"10m\"",
        "when the remedy ends by itself; it must be given, at most 24h",
    ),
    ("at_most", "3", "so many remedies of this rule in an hour"),
];

/// A rule as written in the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Written {
    name: Option<Spanned<String>>,
    when: Option<Spanned<String>>,
    alert: Option<Spanned<String>>,
    r#for: Option<Spanned<String>>,
    again: Option<Spanned<String>>,
    bell: bool,
    notify: bool,
    command: Option<Spanned<Vec<String>>>,
    shell: Option<Spanned<String>>,
    limit: Option<Spanned<String>>,
    remedy: Option<Spanned<String>>,
    expires: Option<Spanned<String>>,
    at_most: Option<Spanned<u32>>,
}

/// An error in a settings file: its place and its description.
pub type Wrong = (Range<usize>, String);

/// A parsed rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The rule's name.
    pub name: String,
    /// The alert that must be active.
    pub alert: Option<&'static str>,
    /// The rows that must match.
    pub filter: Filter,
    /// The time for which the condition must hold.
    pub for_ns: u64,
    /// Minimum time between two actions for the same process.
    pub again_ns: u64,
    /// Set to ring the bell.
    pub bell: bool,
    /// Set to show a desktop notification.
    pub notify: bool,
    /// The program to start.
    pub command: Option<Command>,
    /// The edit to make.
    pub remedy: Option<Remedy>,
}

/// A program that a rule starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// The time limit.
    pub limit: Duration,
}

/// A temporary edit that a rule makes.
#[derive(Clone, Debug)]
pub struct Remedy {
    /// The edit as written in the file.
    pub text: String,
    /// The change.
    pub what: Edit,
    /// The duration.
    pub lasts_ns: u64,
    /// Maximum number of edits in an hour.
    pub at_most: usize,
}

/// The change of a remedy.
#[derive(Clone, Debug)]
pub enum Edit {
    /// The process's quota on the device: a size, or a step relative to the present quota.
    Quota(String),
    /// The process's priority.
    Boost(i32),
    /// The words of the device's policy.
    Policy(String),
}

const S: u64 = 1_000_000_000;
const AGAIN_NS: u64 = 300 * S;
const LIMIT_NS: u64 = 10 * S;
const AT_MOST: u32 = 3;

impl Rule {
    /// Parses a rule; `number` is its position in the file, `at` its byte range.
    pub fn read(written: &Written, number: usize, at: Range<usize>) -> Result<Self, Wrong> {
        let name = match &written.name {
            Some(name) => visible(name)?,
            None => format!("rule {number}"),
        };
        let alert = written.alert.as_ref().map(|alert| {
            let kinds = findings::alerts().map(|kind| kind.id);
            let known: Vec<&str> = kinds.filter(|id| *id != OWN).collect();
            let found = known.iter().find(|kind| **kind == alert.as_ref().as_str());
            found.copied().ok_or_else(|| {
                let why = format!(
                    "there is no alert \"{}\"; there are {}",
                    alert.as_ref(),
                    known.join(", ")
                );
                (alert.span(), why)
            })
        });
        let alert = alert.transpose()?;
        let filter = match &written.when {
            Some(when) => Filter::parse(when.as_ref()).map_err(|why| (when.span(), why))?,
            None => Filter::default(),
        };
        if alert.is_none() && filter.is_empty() {
            return Err((
                at,
                format!("{name} says neither when nor alert, so it would hold for every process"),
            ));
        }
        let command = match (&written.command, &written.shell) {
            (Some(_), Some(shell)) => {
                return Err((shell.span(), "give command or shell, not both".into()));
            }
            (Some(command), None) if command.as_ref().iter().all(String::is_empty) => {
                return Err((
                    command.span(),
                    "the command is empty; write [\"program\", \"argument\"]".into(),
                ));
            }
            (Some(command), None) => Some(command.as_ref().clone()),
            (None, Some(shell)) => {
                Some(vec!["/bin/sh".into(), "-c".into(), shell.as_ref().clone()])
            }
            (None, None) => None,
        };
        let limit = time(&written.limit, LIMIT_NS, S / 10..=300 * S)?;
        Ok(Self {
            name,
            alert,
            filter,
            for_ns: time(&written.r#for, 0, 0..=86_400 * S)?,
            again_ns: time(&written.again, AGAIN_NS, S..=7 * 86_400 * S)?,
            bell: written.bell,
            notify: written.notify,
            command: command.map(|words| Command {
                words,
                limit: Duration::from_nanos(limit),
            }),
            remedy: written
                .remedy
                .as_ref()
                .map(|text| remedy(text, written))
                .transpose()?,
        })
    }

    /// Describes the condition in words.
    pub fn condition(&self) -> String {
        let alert = self.alert.map(|kind| format!("alert {kind}"));
        let filter = (!self.filter.is_empty()).then(|| self.filter.text().to_owned());
        let parts: Vec<String> = alert.into_iter().chain(filter).collect();
        parts.join(", ")
    }

    /// Returns the reason that the audit log records for this rule's edits. The rule's edits are recognised by it.
    pub fn reason(&self) -> String {
        format!("alert rule {}: {}", self.name, self.condition())
    }

    /// Reports whether an edit with this reason was made by this rule.
    pub fn made(&self, reason: &str) -> bool {
        reason == self.reason()
    }
}

fn visible(text: &Spanned<String>) -> Result<String, Wrong> {
    let shown = shm_layout::text::visible(text.as_ref());
    shown.map_err(|error| (text.span(), error.to_string()))?;
    Ok(text.as_ref().clone())
}

fn time(
    text: &Option<Spanned<String>>,
    usual: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, Wrong> {
    let Some(text) = text else { return Ok(usual) };
    let ns = parse_duration(text.as_ref()).map_err(|error| (text.span(), error.to_string()))?;
    if !range.contains(&ns) {
        let [least, most] =
            [range.start(), range.end()].map(|ns| gpushare_base::text::units::format_duration(*ns));
        return Err((
            text.span(),
            format!(
                "\"{}\" is out of range; give {least} to {most}",
                text.as_ref()
            ),
        ));
    }
    Ok(ns)
}

fn remedy(text: &Spanned<String>, written: &Written) -> Result<Remedy, Wrong> {
    let wrong = |why: String| (text.span(), why);
    let (verb, rest) = text
        .as_ref()
        .trim()
        .split_once(' ')
        .unwrap_or((text.as_ref().trim(), ""));
    let rest = rest.trim();
    let what = match verb {
        "quota" => {
            // Parses against a made-up device and quota, so that errors that depend on neither are found at the start.
            gpushare_control::quota::parse_for(rest, Some(1 << 30), 0).map_err(wrong)?;
            Edit::Quota(rest.to_owned())
        }
        "boost" => {
            let priority = gpushare_base::text::units::parse_integer(rest, -20, 19);
            let priority = priority.map_err(|error| wrong(error.to_string()))?;
            Edit::Boost(i32::try_from(priority).unwrap_or(0))
        }
        "policy" => {
            let edit =
                policy::parse(&[rest.to_owned()]).map_err(|failure| wrong(failure.sentence))?;
            edit.ok_or_else(|| wrong("write what the policy should be".into()))?;
            Edit::Policy(rest.to_owned())
        }
        other => {
            return Err(wrong(format!(
                "a remedy is \"quota +2G\", \"boost 5\" or \"policy timeslice=20ms\", not \"{other}\""
            )));
        }
    };
    if written.expires.is_none() {
        return Err(wrong(
            "a remedy must end by itself: write expires = \"10m\" beside it".into(),
        ));
    }
    let at_most = written.at_most.as_ref();
    if let Some(zero) = at_most.filter(|count| !(1..=60).contains(count.as_ref())) {
        return Err((zero.span(), "at_most is out of range; give 1 to 60".into()));
    }
    Ok(Remedy {
        text: text.as_ref().trim().to_owned(),
        what,
        lasts_ns: time(&written.expires, 0, S..=86_400 * S)?,
        at_most: at_most.map_or(AT_MOST, |count| *count.as_ref()) as usize,
    })
}
