//! The action of a rule for one process on one device, with all facts known at that moment.

use super::{Command, Edit, Remedy, Rule};
use gpushare_base::text::plain::plain;
use gpushare_base::text::units::format_duration;
use gpushare_control::audit::Place;
use gpushare_control::{EditRequest, quota};
use gpushare_observe::data::Data;
use gpushare_observe::finding::{self, Finding};
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
    /// The alert, if the rule refers to one.
    pub(super) alert: Option<&'a Finding>,
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
            (Some(alert), _) => alert.sentence(),
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
        let sample = &data.sample;
        let device = self
            .gpu
            .and_then(|gpu| Some((gpu, sample.devices.get(gpu)?)));
        let (edit, temporary) = match (&remedy.what, self.row) {
            (Edit::Policy(words), _) => {
                let (gpu, device) = device.ok_or("it is about no device")?;
                let words = words.clone();
                (finding::Edit::Policy { gpu, words }, device.policy_until_ns)
            }
            (_, None) => return Err("it is about no process".into()),
            (Edit::Quota(text), Some(row)) => {
                let (who, gpu, holding) = (row.who, row.holding.gpu, row.holding);
                let value = quota::parse_for(text, holding.quota.bytes, row.device.total_bytes)?;
                (
                    finding::Edit::Quota { who, gpu, value },
                    holding.quota_until_ns,
                )
            }
            (Edit::Boost(priority), Some(row)) => {
                let edit = finding::Edit::priority(row.who, *priority);
                (edit, row.process.share.boost_until_ns)
            }
        };
        if temporary.is_some() {
            return Err("an edit that ends by itself is in force there".into());
        }
        if edit
            .policy(sample)
            .is_some_and(|(gpu, new)| new == sample.devices[gpu].policy.0)
        {
            return Err("that is the policy already".into());
        }
        let until_ns = sample.time_ns.saturating_add(remedy.lasts_ns);
        let mut request = edit.request(sample, Some(until_ns), Place::Tui)?;
        request.reason = Some(rule.reason());
        // The decision holds only while nothing was edited since, and of two dashboards only the first may edit.
        request.expected_generation = Some(data.sample.generation);
        Ok(Box::new(request))
    }
}
