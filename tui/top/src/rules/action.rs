//! The action of a rule for one process on one device, with all facts known at that moment.

use shm_layout::{Boost, Change, Set, ShareEdit, Until};

use super::{Command, Edit, Remedy, Rule};
use gpushare_base::text::plain::plain;
use gpushare_base::text::units::format_duration;
use gpushare_base::text::uuids;
use gpushare_control::audit::Place;
use gpushare_control::{EditRequest, quota};
use gpushare_observe::data::Data;
use gpushare_sample::Who;
use gpushare_sample::columns::{COLUMNS, Row};

/// An action to run.
#[derive(Clone, Debug)]
pub struct RuleAction {
    /// The name of the rule.
    pub rule: String,
    /// The reason in one sentence.
    pub sentence: String,
    /// The process and device, as the record names them.
    pub target: String,
    /// The start time of the process, in clock ticks.
    pub started: Option<u64>,
    /// Set to ring the bell.
    pub bell: bool,
    /// Set to show a desktop notification.
    pub notify: bool,
    /// The program to start.
    pub command: Option<Command>,
    /// The environment variables of the program.
    pub facts: Vec<(String, String)>,
    /// The edit to make, or the reason against it.
    pub edit: Option<Result<Box<EditRequest>, String>>,
    /// The rule's reason, for the record.
    pub reason: String,
}

impl RuleAction {
    pub(super) fn of(rule: &Rule, about: About<'_>, data: &Data) -> Self {
        let what = about.sentence(rule, data);
        let held = match rule.for_ns {
            0 => String::new(),
            ns => format!(" for {}", format_duration(ns)),
        };
        let process = about.row.map(|row| row.process);
        Self {
            rule: rule.name.clone(),
            sentence: format!("{what}{held}"),
            target: about.target(data),
            started: process.map(|process| process.identity.start_time),
            bell: rule.bell,
            notify: rule.notify,
            command: rule.command.clone(),
            facts: about.facts(rule, &what, data),
            edit: None,
            reason: rule.reason(),
        }
    }
}

/// The finding that a rule acts on.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) row: Option<&'a Row<'a>>,
    pub(super) gpu: Option<usize>,
    /// The alert's sentence, if the rule refers to an alert.
    pub(super) alert: Option<&'a str>,
}

impl About<'_> {
    pub(super) fn who(&self) -> Option<Who> {
        self.row.map(|row| row.who)
    }

    fn target(&self, data: &Data) -> String {
        let gpu = self.gpu.map_or(String::new(), |gpu| format!(" gpu{gpu}"));
        let process = self.row.map(|row| row.process);
        let target = process.map_or(gpu.trim().to_owned(), |p| p.pid_and_name() + &gpu);
        if target.is_empty() {
            data.sample.host.clone()
        } else {
            target
        }
    }

    /// Describes the finding in a sentence, without its duration.
    pub(super) fn sentence(&self, rule: &Rule, data: &Data) -> String {
        let on = self
            .gpu
            .map_or(String::new(), |gpu| format!(" on GPU{gpu}"));
        let said = match (self.alert, self.row) {
            (Some(sentence), _) => sentence.to_owned(),
            (None, Some(row)) => format!(
                "{} ({}){on}: {}",
                data.title(row.who),
                row.process.user,
                rule.filter.text()
            ),
            (None, None) => rule.condition(),
        };
        format!("{}: {said}", rule.name)
    }

    fn facts(&self, rule: &Rule, sentence: &str, data: &Data) -> Vec<(String, String)> {
        let device = self.gpu.and_then(|gpu| data.sample.devices.get(gpu));
        let mut facts = vec![
            ("ALERT_RULE".to_owned(), rule.name.clone()),
            ("ALERT_SENTENCE".to_owned(), sentence.to_owned()),
            ("ALERT_HOST".to_owned(), data.sample.host.clone()),
            (
                "ALERT_UUID".to_owned(),
                device.map_or(String::new(), |device| device.uuid.clone()),
            ),
            (
                "ALERT_GPU".to_owned(),
                self.gpu.map_or(String::new(), |gpu| gpu.to_string()),
            ),
        ];
        if let Some(row) = self.row {
            facts.extend(COLUMNS.iter().map(|column| {
                let value = (column.value)(row).raw().into_owned();
                (format!("ROW_{}", column.key.to_uppercase()), value)
            }));
        }
        for (_, value) in &mut facts {
            *value = plain(value).into_owned();
        }
        facts
    }

    /// Returns the edit of the remedy, or the reason why it is not made.
    pub(super) fn edit(
        &self,
        rule: &Rule,
        remedy: &Remedy,
        data: &Data,
    ) -> Result<Box<EditRequest>, String> {
        let now_ns = data.sample.time_ns;
        let until_ns = now_ns.saturating_add(remedy.lasts_ns);
        let of_person = "an edit that ends by itself is in force there";
        let change = match (&remedy.what, self.row) {
            (Edit::Policy(edit), _) => {
                let device = self.gpu.and_then(|gpu| data.sample.devices.get(gpu));
                let device = device.ok_or("it is about no device")?;
                if device.policy_until_ns.is_some() {
                    return Err(of_person.into());
                }
                let policy = edit
                    .apply(device.policy.0)
                    .map_err(|error| error.to_string())?;
                if policy == device.policy.0 {
                    return Err("that is the policy already".into());
                }
                Change::Policy {
                    device: Some(uuids::parse(&device.uuid).ok_or("the device has no UUID")?),
                    policy: Some(policy),
                    until: Some(Until::lasting(until_ns)),
                }
            }
            (_, None) => return Err("it is about no process".into()),
            (Edit::Quota(text), Some(row)) => {
                if row.holding.quota_until_ns.is_some() {
                    return Err(of_person.into());
                }
                let total = row.device.total_bytes;
                Change::ProcessQuota {
                    slot: row.process.slot().ok_or(UNMANAGED)?,
                    device: Some(row.holding.entry),
                    value: quota::parse_for(text, row.holding.quota.bytes, total)?,
                    until: Some(Until::lasting(until_ns)),
                }
            }
            (Edit::Boost(priority), Some(row)) => {
                if row.process.share.boost_until_ns.is_some() {
                    return Err(of_person.into());
                }
                let boost = Boost {
                    priority: *priority,
                    until_ns,
                };
                let share = ShareEdit {
                    boost: Set::To(boost),
                    ..ShareEdit::default()
                };
                share.change(row.process.slot().ok_or(UNMANAGED)?)
            }
        };
        let target = match remedy.what {
            Edit::Policy(_) => self.gpu.map_or(String::new(), |gpu| format!("gpu{gpu}")),
            _ => self.target(data),
        };
        let mut request = EditRequest::new(change, target, Place::Tui).because(Some(rule.reason()));
        request.target_start_time = self.row.map(|row| row.process.identity.start_time);
        // The decision holds only while nothing was edited since, and of two dashboards only the first may edit.
        request.expected_generation = Some(data.sample.generation);
        Ok(Box::new(request))
    }
}

const UNMANAGED: &str = "gpushare does not manage that process";
