//! A finding is one fact about the jobs of a machine, with the edit that helps and its cost.
//!
//! Alerts, the reasons of slow jobs, the advice about policies and the rules of the settings are findings. The rows of
//! [`crate::findings`] make them; the dashboard, the commands, the JSON and the metrics print them.

use std::fmt;

use gpushare_base::text::edits::A_WHILE;
use gpushare_base::text::units::parse_size;
use gpushare_base::text::uuids;
use gpushare_control::audit::Place;
use gpushare_control::change::summary;
use gpushare_control::{EditRequest, policy, share};
use gpushare_sample::{EditLine, ProcessSample, Sample, Who};
use shm_layout::{Change, LockPolicy, QuotaValue, Set, ShareEdit, Until};

/// The severity of a finding.
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

/// The facts that all findings of one row of the table have in common.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// The name in JSON.
    pub id: &'static str,
    /// The word in front of the sentence on screen.
    pub word: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The condition, for help.
    pub about: &'static str,
    /// The benchmark on another machine in which the effect of the remedy was measured; empty if there is none.
    pub basis: &'static str,
}

/// A fact about the jobs of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The row of the table.
    pub kind: &'static Kind,
    /// The process that the finding is about.
    pub who: Option<Who>,
    /// The device that the finding is about.
    pub gpu: Option<usize>,
    /// The fact as a sentence.
    pub what: String,
    /// The measurements behind it, as a clause that continues the sentence; may be empty.
    pub evidence: String,
    /// The action that helps.
    pub remedy: Option<Remedy>,
    /// The loss that the remedy causes.
    pub cost: Option<Cost>,
    /// The time since which it is so.
    pub since_ns: u64,
    /// Set if it was so before the first look, so that it is older than `since_ns` says.
    pub is_older: bool,
    /// The time at which it was last found.
    pub seen_ns: u64,
}

impl Finding {
    /// Makes a finding of this moment without a remedy.
    pub fn new(kind: &'static Kind, now_ns: u64, what: String) -> Self {
        Self {
            kind,
            who: None,
            gpu: None,
            what,
            evidence: String::new(),
            remedy: None,
            cost: None,
            since_ns: now_ns,
            is_older: false,
            seen_ns: now_ns,
        }
    }

    /// Returns the fact and its evidence in one sentence.
    pub fn sentence(&self) -> String {
        match self.evidence.as_str() {
            "" => self.what.clone(),
            evidence => format!("{}, {evidence}", self.what),
        }
    }

    /// Returns the remedy with its effect and its cost: `order=fair: would give it its share; costs …`.
    pub fn proposal(&self) -> Option<String> {
        let remedy = self.remedy.as_ref()?;
        let mut text = remedy.text.clone();
        if !remedy.gain.is_empty() {
            text += &format!(": would {}", remedy.gain);
        }
        if let Some(cost) = &self.cost {
            text += &format!("; costs {cost}");
        }
        Some(text)
    }

    /// Reports whether its remedy makes an edit.
    pub fn has_edits(&self) -> bool {
        let remedy = self.remedy.as_ref();
        remedy.is_some_and(|remedy| !remedy.edits.is_empty())
    }

    /// Returns the commands that make its remedy.
    pub fn commands(&self, sample: &Sample) -> Vec<String> {
        let edits = self.remedy.iter().flat_map(|remedy| &remedy.edits);
        edits.filter_map(|edit| edit.command(sample).ok()).collect()
    }

    /// Proposes an edit, described in few words, with the effect that follows "would".
    pub fn propose(
        &mut self,
        text: impl Into<String>,
        gain: impl Into<String>,
        edit: Edit,
    ) -> &mut Self {
        self.remedy = Some(Remedy {
            text: text.into(),
            gain: gain.into(),
            gainers: self.who.into_iter().collect(),
            edits: vec![edit],
        });
        self
    }

    /// Names the jobs that gain by the remedy, in place of the one that the finding is about.
    pub fn for_jobs(&mut self, gainers: Vec<Who>) -> &mut Self {
        if let Some(remedy) = &mut self.remedy {
            remedy.gainers = gainers;
        }
        self
    }

    /// Proposes an action outside gpushare's settings.
    pub fn advise(&mut self, text: impl Into<String>) -> &mut Self {
        self.remedy = Some(Remedy {
            text: text.into(),
            ..Remedy::default()
        });
        self
    }

    /// Names what the remedy takes from these jobs. The amount is not measured.
    pub fn costs(&mut self, what: impl Into<String>, losers: Listed) -> &mut Self {
        self.cost = Some(Cost {
            what: what.into(),
            losers,
            measured: None,
        });
        self
    }

    /// Gives the measured amount of the cost.
    pub fn measured(&mut self, amount: impl Into<String>) {
        if let Some(cost) = &mut self.cost {
            cost.measured = Some(amount.into());
        }
    }

    /// Sets the time at which the fact began, which is known from its own record.
    pub fn since(&mut self, ns: u64) -> &mut Self {
        (self.since_ns, self.is_older) = (ns.min(self.seen_ns), false);
        self
    }

    /// Withdraws the remedy.
    pub fn withdraw(&mut self) {
        (self.remedy, self.cost) = (None, None);
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.kind.id, self.who, self.gpu) == (other.kind.id, other.who, other.gpu)
    }
}

/// The action that helps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remedy {
    /// The action in few words.
    pub text: String,
    /// The expected effect, as it follows "would"; may be empty.
    pub gain: String,
    /// The jobs that gain by it.
    pub gainers: Vec<Who>,
    /// The edits, one after the other; none if the action is outside gpushare's settings.
    pub edits: Vec<Edit>,
}

impl Remedy {
    /// Returns the words of the policy that the remedy sets.
    pub fn policy(&self) -> Option<&str> {
        self.edits.iter().find_map(|edit| match edit {
            Edit::Policy { words, .. } => Some(words.as_str()),
            _ => None,
        })
    }

    /// Returns the requests that make the edits.
    pub fn requests(
        &self,
        sample: &Sample,
        until_ns: Option<u64>,
        place: Place,
    ) -> Result<Vec<EditRequest>, String> {
        let edits = self.edits.iter();
        edits
            .map(|edit| edit.request(sample, until_ns, place))
            .collect()
    }

    /// Reports whether one of the remedy's edits was made before and undone.
    pub fn was_undone<'e>(
        &self,
        sample: &Sample,
        edits: impl Iterator<Item = &'e EditLine> + Clone,
    ) -> bool {
        let undone: Vec<u64> = edits.clone().filter_map(|edit| edit.undoes).collect();
        let mut undone = edits
            .filter(|edit| undone.contains(&edit.generation))
            .peekable();
        if undone.peek().is_none() {
            return false;
        }
        let requests = self.requests(sample, None, Place::Tui).unwrap_or_default();
        undone.any(|edit| {
            requests.iter().any(|request| {
                let new = summary(&request.change);
                edit.target == request.target && is_alike(&edit.new, &new) && !lowers(edit)
            })
        })
    }
}

/// Reports whether two edits of one target, as the audit log describes them, are the same remedy: the same policy, or any
/// value of the same setting.
fn is_alike(one: &str, other: &str) -> bool {
    let setting = |text: &str| {
        let word = text.split([' ', '=']).next().unwrap_or_default();
        // A priority for a while is a boost.
        word.replace("boost", "priority")
    };
    match setting(other).as_str() {
        "policy" => one.trim_end_matches(A_WHILE) == other.trim_end_matches(A_WHILE),
        word => setting(one) == word,
    }
}

/// Reports whether an edit made a value smaller, which no remedy does.
fn lowers(edit: &EditLine) -> bool {
    let value = |text: &str| parse_size(text.split([' ', '=']).nth(1)?).ok();
    let old = edit.old.as_deref().and_then(value);
    old.zip(value(&edit.new))
        .is_some_and(|(old, new)| new < old)
}

/// An edit that helps.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Another memory quota on one device.
    Quota {
        /// The process.
        who: Who,
        /// The device.
        gpu: usize,
        /// The quota.
        value: QuotaValue,
    },
    /// Other settings of a process. A priority with an end is a boost.
    Share {
        /// The process.
        who: Who,
        /// The settings.
        share: Box<ShareEdit>,
    },
    /// Another policy of a device, as it is typed.
    Policy {
        /// The device.
        gpu: usize,
        /// The words behind `gpushare policy set GPU`.
        words: String,
    },
    /// The end of a trace.
    EndTrace(Who),
}

impl Edit {
    /// Returns an edit of the settings of a process that `set` sets.
    pub fn share(who: Who, set: impl FnOnce(&mut ShareEdit)) -> Self {
        let mut share = Box::<ShareEdit>::default();
        set(&mut share);
        Edit::Share { who, share }
    }

    /// Returns an edit of a process's priority.
    pub fn priority(who: Who, priority: i32) -> Self {
        Self::share(who, |share| share.priority = Set::To(priority))
    }

    /// Returns the edit that resumes a process.
    pub fn resume(who: Who) -> Self {
        Self::share(who, |share| {
            (share.paused, share.evict) = (Set::To(false), Set::Inherit);
        })
    }

    /// Reports whether the edit can end by itself.
    pub fn can_expire(&self) -> bool {
        match self {
            Edit::Quota { .. } | Edit::Policy { .. } => true,
            Edit::Share { share, .. } => share.paused.is_keep(),
            Edit::EndTrace(_) => false,
        }
    }

    /// Returns the policy of a device after the edit; `None` for an edit that changes no policy.
    pub fn policy(&self, sample: &Sample) -> Option<(usize, LockPolicy)> {
        let Edit::Policy { gpu, words } = self else {
            return None;
        };
        let edit = policy::parse(std::slice::from_ref(words)).ok()??;
        let base = sample.devices.get(*gpu)?.policy.0;
        Some((*gpu, edit.apply(base).ok()?))
    }

    /// Returns the request that makes the edit, until a time or for good.
    pub fn request(
        &self,
        sample: &Sample,
        until_ns: Option<u64>,
        place: Place,
    ) -> Result<EditRequest, String> {
        let (who, gpu) = match self {
            Edit::Quota { who, gpu, .. } => (who, Some(*gpu)),
            Edit::Share { who, .. } | Edit::EndTrace(who) => (who, None),
            Edit::Policy { gpu, words } => {
                let device = sample.devices.get(*gpu).ok_or("the device has gone")?;
                let (_, new) = self
                    .policy(sample)
                    .ok_or(format!("{words} does not fit the policy"))?;
                let change = Change::Policy {
                    device: Some(uuids::parse(&device.uuid).ok_or("the device has no UUID")?),
                    policy: Some(new),
                    until: until_ns.map(Until::lasting),
                };
                return Ok(EditRequest::new(change, format!("gpu{gpu}"), place));
            }
        };
        let process = process(sample, *who)?;
        let slot = process
            .slot()
            .ok_or("gpushare does not manage that process")?;
        let change = match self {
            Edit::Quota { gpu, value, .. } => Change::ProcessQuota {
                slot,
                device: Some(
                    process
                        .on(*gpu)
                        .ok_or("the process has left the device")?
                        .entry,
                ),
                value: *value,
                until: until_ns.map(Until::lasting),
            },
            Edit::Share { share, .. } => match until_ns {
                Some(ns) => share::until(**share, ns).map_err(|failure| failure.sentence)?,
                None => **share,
            }
            .change(slot),
            Edit::EndTrace(_) | Edit::Policy { .. } => Change::Trace { slot, on: None },
        };
        let on = gpu.map_or(String::new(), |gpu| format!(" gpu{gpu}"));
        let target = process.pid_and_name() + &on;
        let start_time = process.identity.start_time;
        Ok(EditRequest::of_process(change, target, start_time, place))
    }

    /// Returns the command that makes the edit.
    pub fn command(&self, sample: &Sample) -> Result<String, String> {
        let pid = |who: &Who| Ok::<u32, String>(process(sample, *who)?.shown_pid());
        Ok(match self {
            Edit::Quota { who, gpu, value } => {
                format!("gpushare quota set {} {value} --gpu {gpu}", pid(who)?)
            }
            Edit::Share { who, share } if share.paused == Set::To(false) => {
                format!("gpushare resume {}", pid(who)?)
            }
            Edit::Share { who, share } => {
                let words = share.words().into_iter();
                let words =
                    words.filter_map(|(word, set)| Some(format!(" {word}={}", set.value()?)));
                format!("gpushare set {}{}", pid(who)?, words.collect::<String>())
            }
            Edit::Policy { gpu, words } => format!("gpushare policy set {gpu} {words}"),
            Edit::EndTrace(who) => format!("gpushare trace stop {}", pid(who)?),
        })
    }
}

fn process(sample: &Sample, who: Who) -> Result<&ProcessSample, String> {
    let mut processes = sample.processes.iter();
    let found = processes.find(|process| Who::of(process) == who);
    found.ok_or_else(|| "the process has ended".into())
}

/// The loss that a remedy causes, and the jobs that bear it.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The loss in few words.
    pub what: String,
    /// The jobs.
    pub losers: Listed,
    /// The amount as it was measured on this machine; `None` if it was not.
    pub measured: Option<String>,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = self.measured.as_deref().unwrap_or("not measured here");
        if self.losers.count > 0 {
            write!(f, "{} ", self.losers)?;
        }
        write!(f, "{} ({amount})", self.what)
    }
}

/// The jobs that a sentence lists: `A`, `A and B`, `A, B and 3 others`. Only the first have their names here, because each of
/// many jobs may be about all others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The names of the first three.
    pub first: Vec<String>,
    /// The number of all.
    pub count: usize,
}

impl Listed {
    /// Lists the jobs `all`, which `name` names.
    pub fn of<T>(all: impl IntoIterator<Item = T>, name: impl FnMut(T) -> String) -> Self {
        let mut all = all.into_iter();
        let first: Vec<String> = all.by_ref().take(3).map(name).collect();
        let count = first.len() + all.count();
        Self { first, count }
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first.as_slice() {
            [] => Ok(()),
            [one] => f.write_str(one),
            [one, two] => write!(f, "{one} and {two}"),
            [one, two, three] if self.count == 3 => write!(f, "{one}, {two} and {three}"),
            [one, two, ..] => write!(f, "{one}, {two} and {} others", self.count - 2),
        }
    }
}

/// The name of findings that rules of the settings make.
pub const OWN: &str = "rule";

/// Time for which an alert stays after it was last found, so that it does not flicker.
const STAYS_NS: u64 = 5_000_000_000;

/// Merges the alerts found now with the previous ones: each keeps its age, and none flickers. `lives` reports whether a
/// process still exists.
pub fn settled(
    found: Vec<Finding>,
    before: &[Finding],
    now_ns: u64,
    lives: impl Fn(Who) -> bool,
) -> Vec<Finding> {
    let mut alerts = found;
    for alert in &mut alerts {
        let earlier = before.iter().find(|old| old.is_same(alert));
        if let Some(old) = earlier.filter(|old| old.since_ns < alert.since_ns) {
            (alert.since_ns, alert.is_older) = (old.since_ns, old.is_older);
        }
    }
    let stays = |old: &&Finding| {
        let fresh = now_ns.saturating_sub(old.seen_ns) < STAYS_NS && old.seen_ns <= now_ns;
        fresh && old.who.is_none_or(&lives)
    };
    for old in before.iter().filter(stays) {
        if !alerts.iter().any(|alert| alert.is_same(old)) {
            alerts.push(old.clone());
        }
    }
    alerts
}
