//! The dialog for the weight, priority and cap of one process, and its behaviour when memory is full.

use shm_layout::text::INHERIT;
use shm_layout::{Boost, SETTINGS, Set, ShareEdit};

use super::{Check, Dialog, Field, Progress, Subject, WhatIf};
use gpushare_control::EditRequest;
use gpushare_control::audit::Place;
use gpushare_control::share;
use gpushare_observe::data::Data;
use gpushare_observe::what_if;
use gpushare_sample::Who;
use gpushare_sample::{Holding, Order, PolicyKind, ProcessSample, SlotId};

/// Durations of a boost: the word and the seconds.
const SPANS: [(&str, u64); 3] = [("1m", 60), ("10m", 600), ("1h", 3600)];

/// Maximum number of devices, or other processes, listed one by one.
const LINES: usize = 4;

/// The parts of a share that were changed in the dialog.
struct Changed {
    weight: bool,
    priority: bool,
}

/// Returns the devices that a process uses, or all that it sees if it uses none yet.
fn worked_on(process: &ProcessSample) -> impl Iterator<Item = &Holding> {
    let none = process.uses().next().is_none();
    let all = process.devices.iter();
    all.filter(move |holding| none || holding.is_used())
}

/// Returns the check that a device's order ignores a value: a warning if the value was changed.
fn without_effect(gpu: usize, order: Order, what: &str, changed: bool) -> Check {
    let text = format!(
        "GPU{gpu}: under order={} the {what} has no effect",
        order.word()
    );
    match changed {
        true => Check::warn(format!(
            "{text}; another order in the lock policy would look at it"
        )),
        false => Check::good(text),
    }
}

/// The process whose share is edited.
#[derive(Clone, Debug)]
pub struct ShareSubject {
    /// Set for a temporary priority only.
    boost: bool,
    slot: SlotId,
    start_time: u64,
    name: String,
}

impl ShareSubject {
    /// Reports whether the edit is temporary.
    pub fn is_boost(&self) -> bool {
        self.boost
    }

    /// Opens the dialog for a process; `None` for an unmanaged process.
    pub fn open(process: &ProcessSample, letter: char) -> Option<Dialog> {
        let subject = Self {
            boost: false,
            slot: process.slot()?,
            start_time: process.identity.start_time,
            name: process.pid_and_name(),
        };
        let typed = process.share.typed().into_iter();
        let mut fields: Vec<Field> = typed
            .filter(|(about, ..)| about.is_typed())
            .map(|(about, value, _)| Field::text(about.label, value, about.hint))
            .collect();
        fields.push(Field::choice(
            "Paused",
            &["no", "yes"],
            process.share.paused.into(),
        ));
        fields.push(Field::text("Reason", "", "for the audit log"));
        Some(Dialog {
            title: format!(
                "Share  {letter} {} on {} ({})",
                subject.name,
                super::gpus(process),
                process.user
            ),
            fields,
            subject: Subject::Share(subject),
            focus: 0,
            progress: Progress::Editing,
            fresh: true,
        })
    }

    /// Opens the dialog that gives a process a higher priority for a while; `None` for an unmanaged process.
    pub fn boost(process: &ProcessSample, letter: char) -> Option<Dialog> {
        let mut dialog = Self::open(process, letter)?;
        let Subject::Share(subject) = &mut dialog.subject else {
            return None;
        };
        subject.boost = true;
        dialog.title = dialog.title.replacen("Share", "Boost", 1);
        let higher = process.share.priority.saturating_add(10).min(19);
        let spans = SPANS.map(|(word, _)| word);
        dialog.fields = vec![
            Field::text(
                "Priority",
                higher.to_string(),
                "-20 to 19, the highest is next",
            ),
            Field::choice("For", &spans, 1),
            Field::text("Reason", "", "for the audit log"),
        ];
        Some(dialog)
    }

    fn boosted(&self, dialog: &Dialog, now_ns: u64) -> Result<ShareEdit, String> {
        let mut typed = ShareEdit::default();
        share::set(&mut typed, "priority", dialog.value("Priority"))?;
        let Set::To(priority) = typed.priority else {
            return Err("a boost wants a number from -20 to 19".into());
        };
        let seconds = SPANS[dialog.chosen("For").min(SPANS.len() - 1)].1;
        Ok(ShareEdit {
            boost: Set::To(Boost {
                priority,
                until_ns: now_ns.saturating_add(seconds * 1_000_000_000),
            }),
            ..ShareEdit::default()
        })
    }

    /// Returns the edit of a process; `None` for an unmanaged process.
    pub fn of(process: &ProcessSample, share: ShareEdit) -> Option<EditRequest> {
        let subject = Self {
            boost: false,
            slot: process.slot()?,
            start_time: process.identity.start_time,
            name: process.pid_and_name(),
        };
        Some(subject.edit(share))
    }

    pub(super) fn now(&self, data: &Data) -> String {
        let Some(process) = data.process(Who::Slot(self.slot)) else {
            return "the process has ended".into();
        };
        let cap = process
            .share
            .cap
            .map_or("none".into(), |cap| format!("{cap}%"));
        let paused = if process.share.paused {
            "   paused"
        } else {
            ""
        };
        format!(
            "weight {}   priority {}   cap {cap}{paused}",
            process.share.weight, process.share.priority
        )
    }

    fn share(&self, dialog: &Dialog) -> Result<ShareEdit, String> {
        let paused = dialog.chosen("Paused") == 1;
        let mut share = ShareEdit {
            paused: Set::To(paused),
            evict: if paused { Set::Keep } else { Set::Inherit },
            ..ShareEdit::default()
        };
        for about in SETTINGS.iter().filter(|about| about.is_typed()) {
            let value = dialog.value(about.label);
            share::set(
                &mut share,
                about.word,
                if value.is_empty() { INHERIT } else { value },
            )?;
        }
        Ok(share)
    }

    pub(super) fn checks(&self, dialog: &Dialog, data: &Data) -> Vec<Check> {
        if self.boost {
            return self.checks_of_boost(dialog, data);
        }
        let share = match self.share(dialog) {
            Ok(share) => share,
            Err(why) => return vec![Check::bad(why)],
        };
        let Some(process) = data.process(Who::Slot(self.slot)) else {
            return vec![Check::bad("the process has ended")];
        };
        let changed = Changed {
            weight: matches!(share.weight, Set::To(weight) if weight != process.share.weight),
            priority: matches!(share.priority, Set::To(priority) if priority != process.share.priority),
        };
        let mut checks = Vec::new();
        for holding in worked_on(process).take(LINES) {
            let device = data.sample.devices.get(holding.gpu);
            let policy = device.map(|device| device.policy.0);
            if policy.is_some_and(|policy| policy.kind == PolicyKind::Off) {
                checks.push(Check::warn(format!(
                    "GPU{}: its policy is off, so this has no effect",
                    holding.gpu
                )));
                continue;
            }
            let order = policy.map_or(Order::Fair, |policy| policy.order);
            match (order, &share.weight) {
                (Order::Fair, Set::To(weight)) => {
                    checks.push(self.fair_share(data, process, holding.gpu, *weight));
                }
                (Order::Fair, _) => {}
                _ => checks.push(without_effect(holding.gpu, order, "weight", changed.weight)),
            }
            if order != Order::Priority && changed.priority {
                checks.push(without_effect(holding.gpu, order, "priority", true));
            }
            let held = data.spent(Who::Slot(self.slot), holding.gpu).hold * 100.0;
            if let Set::To(cap @ 1..100) = share.cap {
                checks.push(Check::good(format!(
                    "GPU{}: at most {cap}% of its time, now {held:.0}%",
                    holding.gpu
                )));
            }
        }
        if share.paused == Set::To(true) {
            checks.push(Check::warn(
                "paused: its next launch waits until it is resumed",
            ));
        }
        checks
    }

    /// Returns what the values would change on the first device of the process that they change at all.
    pub(super) fn what_if(&self, dialog: &Dialog, data: &Data) -> Option<(usize, WhatIf)> {
        let edit = match self.boost {
            true => self.boosted(dialog, data.sample.time_ns),
            false => self.share(dialog),
        };
        let edit = edit.ok()?;
        let who = Who::Slot(self.slot);
        let process = data.process(who)?;
        let mut share = process.share;
        share.weight = edit.weight.value().unwrap_or(share.weight);
        let boosted = edit.boost.value().map(|boost| boost.priority);
        let priority = boosted.or(edit.priority.value());
        share.priority = priority.unwrap_or(share.priority);
        // A cap of 100 is none.
        share.cap = edit.cap.value().or(share.cap).filter(|cap| *cap < 100);
        share.paused = edit.paused.value().unwrap_or(share.paused);
        let is_same = share == process.share;
        let mut gpus = worked_on(process).map(|holding| holding.gpu);
        gpus.find_map(|gpu| {
            let kind = data.sample.devices.get(gpu)?.policy.0.kind;
            let foreseen =
                (!is_same && kind.is_gated()).then(|| what_if::of_share(data, gpu, who, share))?;
            foreseen.map(|foreseen| (gpu, foreseen))
        })
    }

    fn checks_of_boost(&self, dialog: &Dialog, data: &Data) -> Vec<Check> {
        if let Err(why) = self.boosted(dialog, data.sample.time_ns) {
            return vec![Check::bad(why)];
        }
        let Some(process) = data.process(Who::Slot(self.slot)) else {
            return vec![Check::bad("the process has ended")];
        };
        let span = dialog.value("For");
        let mut checks = vec![Check::good(format!(
            "after {span} its priority is {} again by itself",
            process.share.priority
        ))];
        for holding in worked_on(process).take(LINES) {
            let policy = data.sample.devices.get(holding.gpu).map(|d| d.policy.0);
            let policy = policy.unwrap_or_default();
            checks.push(match (policy.kind, policy.order) {
                (PolicyKind::Off | PolicyKind::HwTimeslice(_), _) => Check::warn(format!(
                    "GPU{}: its policy is {}, so this has no effect",
                    holding.gpu,
                    policy.kind.parts().0.word
                )),
                (_, Order::Priority) => Check::good(format!("GPU{}: it goes first", holding.gpu)),
                (_, order) => without_effect(holding.gpu, order, "priority", true),
            });
        }
        checks
    }

    /// Estimates the process's share among those that want the device now, before and after, and the cost to the
    /// others.
    fn fair_share(&self, data: &Data, process: &ProcessSample, gpu: usize, weight: u32) -> Check {
        let others: Vec<_> = data
            .contenders(gpu)
            .filter(|p| p.slot() != Some(self.slot))
            .collect();
        if others.is_empty() {
            return Check::good(format!(
                "GPU{gpu}: no other process wants it now, so it gets all it asks for"
            ));
        }
        let sum = others
            .iter()
            .map(|p| p.share.weight)
            .fold(0, u32::saturating_add);
        let (before, after) = (
            sum.saturating_add(process.share.weight),
            sum.saturating_add(weight),
        );
        let percent = |part: u32, whole: u32| f64::from(part) * 100.0 / f64::from(whole.max(1));
        if weight == process.share.weight {
            let share = percent(weight, after);
            return Check::good(format!("GPU{gpu}: fair share {share:.0}%, as now"));
        }
        let change = |weight: u32, new: u32| {
            format!(
                "{:.0} to {:.0}%",
                percent(weight, before),
                percent(new, after)
            )
        };
        let mut text = format!(
            "GPU{gpu}: fair share {}",
            change(process.share.weight, weight)
        );
        for other in others.iter().take(LINES) {
            let letter = data.letter(Who::of(other));
            text += &format!(
                ", {letter} {}",
                change(other.share.weight, other.share.weight)
            );
        }
        Check::good(text)
    }

    pub(super) fn request(&self, dialog: &Dialog, data: &Data) -> Result<EditRequest, String> {
        if self.boost {
            let boosted = self.boosted(dialog, data.sample.time_ns)?;
            return Ok(self.edit(boosted).because(dialog.reason()));
        }
        let process = data.process(Who::Slot(self.slot));
        let share = match process {
            Some(process) => changed(self.share(dialog)?, process),
            None => self.share(dialog)?,
        };
        if share == ShareEdit::default() {
            return Err("nothing is changed".into());
        }
        Ok(self.edit(share).because(dialog.reason()))
    }

    fn edit(&self, share: ShareEdit) -> EditRequest {
        let change = share.change(self.slot);
        EditRequest::of_process(change, &self.name, self.start_time, Place::Tui)
    }
}

/// Returns only the values that differ from the present ones: a temporary value keeps its end, an inherited one stays
/// inherited.
fn changed(share: ShareEdit, process: &ProcessSample) -> ShareEdit {
    let mut changed = share.without_values_in_force(&process.share);
    if changed.paused.is_keep() {
        changed.evict = Set::Keep;
    }
    changed
}
