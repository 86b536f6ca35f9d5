//! The lock policy of one device, or of all.

use shm_layout::text::POLICY_FIELDS;
use shm_layout::{Change, LockPolicy, Order, PolicyKind, Uuid};

use super::{Check, Dialog, Field, Progress, Subject, effect};
use crate::edit::audit::Place;
use crate::edit::{EditRequest, policy, preview};
use crate::sample::DeviceSample;
use crate::text::units::{format_duration, format_idle, format_policy};
use crate::text::uuids;
use crate::top::data::Data;

const RULES: [&str; 5] = ["off", "overlap", "launches", "timeslice", "always"];

/// Whose policy.
#[derive(Clone, Debug)]
pub struct PolicySubject {
    uuid: Uuid,
    gpu: usize,
    base: LockPolicy,
}

impl PolicySubject {
    /// The dialog for the device at `gpu`; `None` while no process has entered it in the segment.
    pub fn open(data: &Data, gpu: usize) -> Option<Dialog> {
        let device = data.sample.devices.get(gpu)?;
        let base = device.policy.0;
        let subject = Self {
            uuid: uuids::parse(&device.uuid)?,
            gpu,
            base,
        };
        let (rule, after) = match base.kind {
            PolicyKind::Off => (0, "5ms".into()),
            PolicyKind::Overlap(ns) => (1, format_duration(ns)),
            PolicyKind::Launches(count) => (2, count.to_string()),
            PolicyKind::Timeslice(ns) => (3, format_duration(ns)),
            PolicyKind::Always => (4, String::new()),
        };
        let order = Order::ALL.iter().position(|order| *order == base.order);
        let span = |label, name, ns| Field::text(label, format_duration(ns), note(name));
        Some(Dialog {
            title: format!("Lock policy  GPU{gpu} {}", device.short_name()),
            fields: vec![
                Field::choice("Yield", &RULES, rule),
                Field::text(
                    "After",
                    after,
                    "launches: a number; overlap, timeslice: a time",
                ),
                Field::choice("Next", &Order::WORDS, order.unwrap_or(0)),
                Field::text("Idle", format_idle(base.idle_ns), note("idle")),
                span("Max hold", "max-hold", base.max_hold_ns),
                span("Grace", "grace", base.grace_ns),
                Field::text(
                    "Sync skips",
                    base.sync_skips.to_string(),
                    note("sync-skips"),
                ),
                Field::choice("Scope", &[&format!("GPU{gpu}"), "all GPUs"], 0),
                Field::text("Reason", "", "for the audit log"),
            ],
            subject: Subject::Policy(subject),
            focus: 0,
            progress: Progress::Editing,
        })
    }

    pub(super) fn now(&self, data: &Data) -> String {
        self.device(data).map_or_else(
            || "the device has gone".into(),
            |d| format!("{}: {}", d.policy.1.word(), d.policy.0),
        )
    }

    fn device<'a>(&self, data: &'a Data) -> Option<&'a DeviceSample> {
        let is = |device: &&DeviceSample| uuids::parse(&device.uuid) == Some(self.uuid);
        data.sample.devices.iter().find(is)
    }

    fn policy(&self, dialog: &Dialog) -> Result<LockPolicy, String> {
        let edit = policy::parse(&words(dialog)).map_err(|failure| failure.sentence)?;
        let edit = edit.ok_or("choose a rule")?;
        edit.apply(self.base).map_err(|error| error.to_string())
    }

    pub(super) fn checks(&self, dialog: &Dialog, data: &Data) -> Vec<Check> {
        let policy = match self.policy(dialog) {
            Ok(policy) => policy,
            Err(why) => return vec![Check::bad(why)],
        };
        let all = dialog.chosen("Scope") == 1;
        let now = self
            .device(data)
            .map_or(self.base, |device| device.policy.0);
        let changes = effect::difference(&now, &policy);
        let mut checks = vec![match changes.is_empty() {
            true if all => Check::good(format!("all GPUs: {}", format_policy(&policy))),
            true => Check::warn("no change: these values are in force already"),
            false if now != self.base => {
                Check::warn(format!("changed in the meantime: {}", changes.join("  ")))
            }
            false => Check::good(changes.join("  ")),
        }];
        checks.push(self.reach(data, all, &policy));
        checks.extend(effect::of_policy(data, self.gpu, &policy));
        checks
    }

    /// How many processes it would concern.
    fn reach(&self, data: &Data, all: bool, policy: &LockPolicy) -> Check {
        let devices = &data.sample.devices;
        let gpus = if all {
            0..devices.len()
        } else {
            self.gpu..self.gpu + 1
        };
        let change = self.change(all, *policy);
        let concerned = effect::processes(preview::concerned(&change, &data.sample).count());
        if !all {
            return Check::good(format!("applies to {concerned} on GPU{}", self.gpu));
        }
        let others = gpus.filter(|gpu| devices[*gpu].policy.0 != *policy).count();
        Check::good(format!(
            "applies to {concerned}; {others} of {} GPUs have another policy now and lose it",
            devices.len()
        ))
    }

    pub(super) fn request(&self, dialog: &Dialog) -> Result<EditRequest, String> {
        let all = dialog.chosen("Scope") == 1;
        let change = self.change(all, self.policy(dialog)?);
        let target = if all {
            "all GPUs".to_owned()
        } else {
            format!("gpu{}", self.gpu)
        };
        Ok(EditRequest::new(change, target, Place::Tui).because(dialog.reason()))
    }

    fn change(&self, all: bool, policy: LockPolicy) -> Change {
        Change::Policy {
            device: (!all).then_some(self.uuid),
            policy: Some(policy),
        }
    }
}

/// What setting a device's policy would do, or everybody's; without one, its own is taken away.
pub(super) fn foresee(data: &Data, device: Option<Uuid>, policy: Option<LockPolicy>) -> Vec<Check> {
    let Some(policy) = policy else {
        return vec![Check::good(
            "the policy for all GPUs, or the default, applies again",
        )];
    };
    let devices = &data.sample.devices;
    let meant =
        |gpu: &usize| device.is_none_or(|uuid| uuids::parse(&devices[*gpu].uuid) == Some(uuid));
    let meant = (0..devices.len()).filter(meant);
    meant
        .take(2)
        .flat_map(|gpu| effect::of_policy(data, gpu, &policy))
        .collect()
}

/// The dialog as `gpushare policy set` would be told it.
fn words(dialog: &Dialog) -> Vec<String> {
    let rule = match dialog.value("Yield") {
        with_value @ ("overlap" | "launches" | "timeslice") => {
            format!("{with_value}={}", dialog.value("After"))
        }
        alone => alone.to_owned(),
    };
    let mut words = vec![rule, format!("order={}", dialog.value("Next"))];
    let named = [
        ("Idle", "idle"),
        ("Max hold", "max-hold"),
        ("Grace", "grace"),
        ("Sync skips", "sync-skips"),
    ];
    for (label, name) in named {
        if !dialog.value(label).is_empty() {
            words.push(format!("{name}={}", dialog.value(label)));
        }
    }
    words
}

fn note(name: &str) -> String {
    let field = POLICY_FIELDS.iter().find(|field| field.name == name);
    field
        .map(|field| field.about.to_owned())
        .unwrap_or_default()
}
