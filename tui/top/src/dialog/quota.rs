//! The dialog for the memory quota of one process.

use shm_layout::{Change, QuotaValue, Until};

use super::{Check, Dialog, Field, Progress, Subject};
use gpushare_base::text::units::{self, human_size, short_time};
use gpushare_control::EditRequest;
use gpushare_control::audit::Place;
use gpushare_control::preview::{Effect, effects};
use gpushare_control::quota::{EMPTY, parse_for};
use gpushare_observe::data::Data;
use gpushare_sample::Who;
use gpushare_sample::{Holding, ProcessSample, SlotId};

/// Durations of a quota: the word and the seconds.
const SPANS: [(&str, u64); 4] = [("keep", 0), ("1m", 60), ("10m", 600), ("1h", 3600)];

const AGAIN: &str = "the value of its launch, its group or the default applies again";

const AGAIN_HERE: &str = "the value for every GPU, its launch, group or the default applies again";

/// Maximum number of devices listed one by one.
const LINES: usize = 3;

/// The process and the device whose quota is edited.
#[derive(Clone, Debug)]
pub struct QuotaSubject {
    slot: SlotId,
    start_time: u64,
    entry: Option<u8>,
    gpu: usize,
    name: String,
}

impl QuotaSubject {
    /// Opens the dialog for a process and the device it is shown on; `None` for an unmanaged process.
    pub fn open(process: &ProcessSample, gpu: usize, letter: char) -> Option<Dialog> {
        let holding = process.on(gpu).or(process.devices.first())?;
        let subject = Self {
            slot: process.slot()?,
            start_time: process.identity.start_time,
            entry: Some(holding.entry),
            gpu: holding.gpu,
            name: process.pid_and_name(),
        };
        let spans: Vec<&str> = SPANS.iter().map(|(word, _)| *word).collect();
        let this = format!("GPU{}", holding.gpu);
        let now = holding
            .quota
            .bytes
            .map(units::format_size)
            .unwrap_or_default();
        Some(Dialog {
            title: format!(
                "Memory quota  {letter} {} on {this} ({})",
                subject.name, process.user
            ),
            fields: vec![
                Field::text("New", now, "32G  25%  +2G  -10%  none  max  inherit"),
                Field::choice("On", &[&this, "every GPU"], 0),
                Field::choice("For", &spans, 0),
                Field::text("Reason", "", "for the audit log"),
            ],
            subject: Subject::Quota(subject),
            focus: 0,
            progress: Progress::Editing,
            fresh: true,
        })
    }

    fn holding<'a>(&self, data: &'a Data) -> Option<&'a Holding> {
        data.process(Who::Slot(self.slot))?.on(self.gpu)
    }

    pub(super) fn now(&self, data: &Data) -> String {
        let Some(holding) = self.holding(data) else {
            return "the process has ended".into();
        };
        let now = data.sample.time_ns;
        let left = holding
            .quota_until_ns
            .map(|until| until.saturating_sub(now));
        format!(
            "{}{}   used {}   peak {}   set by: {}",
            quota_text(holding.quota.bytes),
            left.map_or_else(String::new, |left| format!(" for {}", short_time(left))),
            human_size(holding.used),
            human_size(holding.peak),
            holding.quota.source.word()
        )
    }

    pub(super) fn checks(&self, dialog: &Dialog, data: &Data) -> Vec<Check> {
        let Some(holding) = self.holding(data) else {
            return vec![Check::bad("the process has ended")];
        };
        let total = data
            .sample
            .devices
            .get(self.gpu)
            .map_or(0, |d| d.total_bytes);
        if dialog.value("New").is_empty() {
            return vec![Check::warn(EMPTY)];
        }
        let value = match parse_for(dialog.value("New"), holding.quota.bytes, total) {
            Ok(value) => value,
            Err(why) => return vec![Check::bad(why)],
        };
        let everywhere = dialog.chosen("On") == 1;
        if value == QuotaValue::Inherit {
            return vec![Check::good(again(everywhere))];
        }
        let Some(process) = data.process(Who::Slot(self.slot)) else {
            return Vec::new();
        };
        let change = self.change(everywhere, value, None);
        let mut checks: Vec<Check> = effects(&change, &self.name, &data.sample)
            .iter()
            .flat_map(|effect| tell(data, effect))
            .collect();
        let hidden = (checks.len() / 2).saturating_sub(LINES);
        checks.truncate(2 * LINES);
        if hidden > 0 {
            checks.push(Check::good(format!("and {hidden} more GPUs")));
        }
        if let Some(bytes) = value.of_device(total).flatten() {
            checks.push(self.sum(data, bytes, total));
        }
        checks.extend(group(data, process, self.gpu));
        checks
    }

    /// Returns the check of the sum of all quotas on the device.
    fn sum(&self, data: &Data, bytes: u64, total: u64) -> Check {
        let others = data
            .sample
            .holdings(self.gpu)
            .filter(|(p, _)| p.slot() != Some(self.slot));
        let sum = others
            .filter_map(|(_, h)| h.quota.bytes)
            .fold(bytes, u64::saturating_add);
        let text = format!(
            "quotas on GPU{} add up to {} of {}",
            self.gpu,
            human_size(sum),
            human_size(total)
        );
        if sum > total {
            Check::warn(text)
        } else {
            Check::good(text)
        }
    }

    pub(super) fn request(&self, dialog: &Dialog, data: &Data) -> Result<EditRequest, String> {
        let holding = self.holding(data).ok_or("the process has ended")?;
        let total = data
            .sample
            .devices
            .get(self.gpu)
            .map_or(0, |d| d.total_bytes);
        let value = parse_for(dialog.value("New"), holding.quota.bytes, total)?;
        let everywhere = dialog.chosen("On") == 1;
        let seconds = SPANS[dialog.chosen("For")].1;
        let until = (seconds > 0).then(|| {
            let span = seconds * 1_000_000_000;
            Until::lasting(data.sample.time_ns.saturating_add(span))
        });
        let change = self.change(everywhere, value, until);
        let target = if everywhere {
            self.name.clone()
        } else {
            format!("{} gpu{}", self.name, self.gpu)
        };
        let request = EditRequest::of_process(change, target, self.start_time, Place::Tui);
        Ok(request.because(dialog.reason()))
    }

    fn change(
        &self,
        everywhere: bool,
        value: QuotaValue,
        until: Option<Until<QuotaValue>>,
    ) -> Change {
        Change::ProcessQuota {
            slot: self.slot,
            device: if everywhere { None } else { self.entry },
            value,
            until,
        }
    }
}

/// Returns the checks for an edit of a process's quota.
pub(super) fn foresee(data: &Data, change: &Change) -> Vec<Check> {
    let Change::ProcessQuota {
        slot,
        device,
        value,
        ..
    } = change
    else {
        return Vec::new();
    };
    if data.process(Who::Slot(*slot)).is_none() {
        return vec![Check::bad("the process has ended")];
    }
    if *value == QuotaValue::Inherit {
        return vec![Check::good(again(device.is_none()))];
    }
    let effects = effects(change, "", &data.sample);
    effects
        .iter()
        .take(LINES)
        .flat_map(|effect| tell(data, effect))
        .collect()
}

/// Describes the limit that holds once a quota is unset, of one device or of all.
fn again(everywhere: bool) -> &'static str {
    if everywhere { AGAIN } else { AGAIN_HERE }
}

/// Returns the checks of the change on one device: the change itself, and whether the new quota is below the present or
/// the highest usage.
fn tell(data: &Data, effect: &Effect) -> [Check; 2] {
    let device = data.sample.devices.get(effect.gpu);
    let total = device.map_or(0, |device| device.total_bytes);
    let from = format!(
        "GPU{}: from {} to",
        effect.gpu,
        quota_text(effect.before_bytes)
    );
    let Some(bytes) = effect.quota_bytes else {
        let used = data.used_bytes(effect.gpu);
        let free = human_size(total.saturating_sub(used));
        return [
            Check::good(format!("{from} no limit")),
            Check::good(format!("it may use all of the {free} that is free")),
        ];
    };
    let judged = match effect.excess_bytes() {
        Some(excess) => Check::warn(format!(
            "over by {}: new allocations are denied until it frees that",
            human_size(excess)
        )),
        None if bytes < effect.peak_bytes => Check::warn(format!(
            "below its peak of {}",
            human_size(effect.peak_bytes)
        )),
        None => Check::good("above its peak"),
    };
    let to = format!("{from} {} ({bytes} bytes)", human_size(bytes));
    [Check::good(to), judged]
}

/// Returns the check of the group's own limit, which stays.
fn group(data: &Data, process: &ProcessSample, gpu: usize) -> Option<Check> {
    let name = process.group.as_ref()?;
    let group = data
        .sample
        .groups
        .iter()
        .find(|group| group.name == *name)?;
    let quota = data.sample.group_quota(group, gpu)?;
    let used = data.sample.group_bytes(group, gpu);
    Some(Check::good(format!(
        "group {name} holds {} of {} there: that limit stays",
        human_size(used),
        human_size(quota)
    )))
}

fn quota_text(bytes: Option<u64>) -> String {
    bytes.map_or("no limit".into(), human_size)
}
