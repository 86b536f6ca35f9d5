//! The dialog for the lock policy of one device, or of all.

use shm_layout::policy::{KINDS, POLICY_ROWS, PolicyRow};
use shm_layout::{Change, LockPolicy, PolicyKind, Uuid};
use tui_input::Input;

use super::{Check, Control, Dialog, Field, Progress, Subject, WhatIf, effect};
use gpushare_base::text::policy::in_words;
use gpushare_base::text::uuids;
use gpushare_control::audit::Place;
use gpushare_control::{EditRequest, policy, preview};
use gpushare_observe::data::Data;
use gpushare_observe::what_if;
use gpushare_sample::DeviceSample;

/// The fields for the rule that ends a turn, and for the rule's time or number.
pub(super) const RULE: &str = "Yield";
const AFTER: &str = "After";

/// The device whose policy is edited.
#[derive(Clone, Debug)]
pub struct PolicySubject {
    uuid: Uuid,
    gpu: usize,
    /// The policy that was in force when the dialog opened.
    base: LockPolicy,
    /// The rule that the dialog opened with.
    offered: PolicyKind,
}

impl PolicySubject {
    /// Opens the dialog for the device at `gpu` with a proposed policy, else with the present one; `None` if no process has
    /// entered the device in the segment.
    pub fn open(data: &Data, gpu: usize, proposed: Option<LockPolicy>) -> Option<Dialog> {
        let device = data.sample.devices.get(gpu)?;
        let base = device.policy.0;
        let shown = proposed.unwrap_or(base);
        let subject = Self {
            uuid: uuids::parse(&device.uuid)?,
            gpu,
            base,
            offered: shown.kind,
        };
        let (kind, _) = shown.kind.parts();
        let after = subject.proposed(kind.word);
        let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.word).collect();
        let mut fields = vec![
            choice(RULE, &kinds, kind.word),
            Field::text(
                AFTER,
                after,
                "a number of launches or a time; overlap: or empty",
            ),
        ];
        fields.extend(shown.written().into_iter().map(setting));
        fields.push(Field::choice(
            "Scope",
            &[&format!("GPU{gpu}"), "all GPUs"],
            0,
        ));
        fields.push(Field::text("Reason", "", "for the audit log"));
        Some(Dialog {
            title: format!("Lock policy  GPU{gpu} {}", device.short_name()),
            fields,
            subject: Subject::Policy(subject),
            focus: 0,
            progress: Progress::Editing,
            fresh: true,
        })
    }

    /// Proposes the time or number of the chosen rule, unless another value was typed.
    pub(super) fn follow(&self, fields: &mut [Field], old: &str, new: &str) {
        let mut after = fields.iter_mut().filter(|field| field.label == AFTER);
        if let Some(after) = after.find(|after| after.value() == self.proposed(old)) {
            after.control = Control::Text(Input::new(self.proposed(new)));
        }
    }

    /// Returns the offered or present time or number of the rule, or else the usual one; empty if the rule has none.
    fn proposed(&self, rule: &str) -> String {
        let usual = [
            PolicyKind::Overlap(None),
            PolicyKind::Timeslice(5_000_000),
            PolicyKind::HwTimeslice(8_000_000),
        ];
        let of_rule = |kind: PolicyKind| {
            let value = kind.to_string();
            let value = value.strip_prefix(rule)?;
            Some(value.strip_prefix('=').unwrap_or_default().to_owned())
        };
        let mut kinds = [self.offered, self.base.kind].into_iter().chain(usual);
        kinds.find_map(of_rule).unwrap_or_default()
    }

    pub(super) fn now(&self, data: &Data) -> String {
        self.device(data).map_or_else(
            || "the device has gone".into(),
            |d| format!("{}   set by: {}", in_words(&d.policy.0), d.policy.1.word()),
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
            true if all => Check::good(format!("all GPUs: {policy}")),
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

    /// Returns what the policy would change on the shown device.
    pub(super) fn what_if(&self, dialog: &Dialog, data: &Data) -> Option<(usize, WhatIf)> {
        let policy = self.policy(dialog).ok()?;
        let present = self.device(data)?.policy.0;
        let is_gated = policy.kind.is_gated() || present.kind.is_gated();
        let gpu = self.gpu;
        (policy != present && is_gated)
            .then(|| what_if::of_policy(data, gpu, &policy))?
            .map(|foreseen| (gpu, foreseen))
    }

    /// Returns the check that counts the affected processes.
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
            until: None,
        }
    }
}

/// Returns the checks for setting the policy of a device, or of all devices; without a policy, for removing it.
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

fn choice(label: &'static str, words: &[&str], chosen: &str) -> Field {
    let at = words.iter().position(|word| *word == chosen);
    Field::choice(label, words, at.unwrap_or(0))
}

/// Returns the field of a setting with its value.
fn setting((row, number): (&'static PolicyRow, u64)) -> Field {
    let value = row.values.show(number);
    if row.values.limits.is_some() {
        let note = if row.hint.is_empty() {
            row.help
        } else {
            row.hint
        };
        return Field::text(row.label, value, note);
    }
    let mut words: Vec<&str> = row.values.words.iter().map(|(word, _)| *word).collect();
    if row.values.is_switch() {
        // Off is the left one.
        words.reverse();
    }
    Field {
        note: row.hint.into(),
        ..choice(row.label, &words, &value)
    }
}

/// Returns the words that `gpushare policy set` would take for this dialog.
fn words(dialog: &Dialog) -> Vec<String> {
    let (rule, after) = (dialog.value(RULE), dialog.value(AFTER));
    let kind = KINDS.iter().find(|kind| kind.word == rule);
    let stands_alone = kind
        .is_none_or(|kind| kind.amount.is_none() || after.is_empty() && (kind.of)(None).is_some());
    let mut words = vec![match stands_alone {
        true => rule.to_owned(),
        false => format!("{rule}={after}"),
    }];
    for row in POLICY_ROWS {
        let value = dialog.value(row.label);
        // Other rules have no slices for these fields; the word overlap would be a rule of its own.
        if !value.is_empty() && (!row.of_slices || rule == "timeslice") {
            words.push(format!("{}={value}", row.word));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::state::State;
    use gpushare_sample::Sample;

    fn open(kind: PolicyKind) -> Dialog {
        let mut device = DeviceSample {
            uuid: uuids::format([1; 16], false),
            ..DeviceSample::default()
        };
        device.policy.0.kind = kind;
        let mut sample = Sample::default();
        sample.devices.push(device);
        let mut state = State::default();
        state.update(sample);
        PolicySubject::open(state.data(), 0, None).expect("a known device")
    }

    fn press(dialog: &mut Dialog, code: KeyCode) {
        dialog.key(KeyEvent::new(code, KeyModifiers::NONE));
    }

    #[test]
    fn the_proposed_time_is_that_of_the_chosen_rule() {
        let mut dialog = open(PolicyKind::Off);
        let mut seen = Vec::new();
        for _ in KINDS {
            seen.push((
                dialog.value(RULE).to_owned(),
                dialog.value(AFTER).to_owned(),
            ));
            press(&mut dialog, KeyCode::Char(' '));
        }
        let seen: Vec<(&str, &str)> = seen.iter().map(|(rule, time)| (&**rule, &**time)).collect();
        let times = ["", "", "", "5ms", "", "8ms"];
        let rules = KINDS.iter().map(|kind| kind.word);
        assert_eq!(seen, rules.zip(times).collect::<Vec<_>>());

        let mut dialog = open(PolicyKind::Timeslice(20_000_000));
        press(&mut dialog, KeyCode::Left);
        press(&mut dialog, KeyCode::Left);
        assert_eq!(dialog.value(AFTER), "", "overlap knows by itself");
        press(&mut dialog, KeyCode::Right);
        press(&mut dialog, KeyCode::Right);
        assert_eq!(dialog.value(AFTER), "20ms", "what is in force");
    }

    #[test]
    fn a_typed_time_stays_when_another_rule_is_chosen() {
        let mut dialog = open(PolicyKind::Overlap(Some(500_000)));
        dialog.focus = 1;
        for key in [KeyCode::Backspace, KeyCode::Backspace, KeyCode::Backspace] {
            press(&mut dialog, key);
        }
        for letter in "3ms".chars() {
            press(&mut dialog, KeyCode::Char(letter));
        }
        dialog.focus = 0;
        press(&mut dialog, KeyCode::Right);
        press(&mut dialog, KeyCode::Right);
        assert_eq!(
            (dialog.value(RULE), dialog.value(AFTER)),
            ("timeslice", "3ms")
        );
    }

    fn sent(dialog: &Dialog) -> Result<LockPolicy, String> {
        match &dialog.subject {
            Subject::Policy(subject) => subject.policy(dialog),
            _ => unreachable!("it is a policy's dialog"),
        }
    }

    fn focus(dialog: &mut Dialog, label: &str) {
        let at = dialog.fields.iter().position(|f| f.label == label);
        dialog.focus = at.expect("a field of that name");
    }

    #[test]
    fn long_slices_may_include_the_memory_and_other_rules_do_not() {
        let mut dialog = open(PolicyKind::Timeslice(2_000_000_000));
        focus(&mut dialog, "Swap");
        press(&mut dialog, KeyCode::Char(' '));
        assert!(sent(&dialog).unwrap().swap);
        focus(&mut dialog, AFTER);
        for key in [KeyCode::Backspace, KeyCode::Char('m'), KeyCode::Char('s')] {
            press(&mut dialog, key);
        }
        assert!(sent(&dialog).is_err(), "2ms is too short");
        focus(&mut dialog, RULE);
        press(&mut dialog, KeyCode::Right);
        assert!(!sent(&dialog).unwrap().swap);
    }

    #[test]
    fn slices_have_an_overlap_and_other_rules_have_none() {
        let mut dialog = open(PolicyKind::Timeslice(5_000_000));
        focus(&mut dialog, "Overlap");
        press(&mut dialog, KeyCode::Char('0'));
        assert_eq!(sent(&dialog).unwrap().overlap_ns, 0);
        focus(&mut dialog, RULE);
        press(&mut dialog, KeyCode::Right);
        assert_eq!(sent(&dialog).unwrap().kind, PolicyKind::Always);
    }
}
