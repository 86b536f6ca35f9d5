//! The memory quota of one process.

use shm_layout::{Change, QuotaValue, Until};

use super::{Check, Dialog, Field, Progress, Subject};
use crate::edit::EditRequest;
use crate::edit::audit::Place;
use crate::sample::{Holding, ProcessSample, Slot};
use crate::text::units::{self, Amount, human_size};
use crate::top::state::{Data, Who};

/// For how long a quota may be set, and the seconds.
const SPANS: [(&str, u64); 4] = [("keep", 0), ("1m", 60), ("10m", 600), ("1h", 3600)];

const AGAIN: &str = "what its launch, its group or the default says holds again";

const AGAIN_HERE: &str = "what is set for every GPU, its launch, group or default holds again";

/// So many devices are told one by one.
const LINES: usize = 3;

const EMPTY: &str = "write a size, a share, none, max or inherit";

/// Whose quota, on which device.
#[derive(Clone, Debug)]
pub struct QuotaSubject {
    slot: Slot,
    start_time: u64,
    entry: Option<u8>,
    gpu: usize,
    name: String,
}

impl QuotaSubject {
    /// The dialog for a process and the device it is shown on; `None` for an unmanaged process.
    pub fn open(process: &ProcessSample, gpu: usize, letter: char) -> Option<Dialog> {
        let holding = process.on(gpu).or(process.devices.first())?;
        let subject = Self {
            slot: process.slot?,
            start_time: process.start_time,
            entry: holding.entry,
            gpu: holding.gpu,
            name: format!("{} {}", process.shown_pid(), process.name()),
        };
        let spans: Vec<&str> = SPANS.iter().map(|(word, _)| *word).collect();
        let this = format!("GPU{}", holding.gpu);
        let now = holding
            .quota_bytes
            .map(units::format_size)
            .unwrap_or_default();
        Some(Dialog {
            title: format!("Memory quota  {letter} {} ({})", subject.name, process.user),
            fields: vec![
                Field::text("New", now, "32G  25%  +2G  -10%  none  max  inherit"),
                Field::choice("On", &[&this, "every GPU"], 0),
                Field::choice("For", &spans, 0),
                Field::text("Reason", "", "for the audit log"),
            ],
            subject: Subject::Quota(subject),
            focus: 0,
            progress: Progress::Editing,
        })
    }

    fn holding<'a>(&self, data: &'a Data) -> Option<&'a Holding> {
        data.process(Who::Slot(self.slot))?.on(self.gpu)
    }

    pub(super) fn now(&self, data: &Data) -> String {
        let Some(holding) = self.holding(data) else {
            return "the process has gone".into();
        };
        format!(
            "{}   used {}   peak {}   set by: {}",
            quota_text(holding.quota_bytes),
            human_size(holding.used_bytes),
            human_size(holding.peak_bytes),
            holding.quota_source
        )
    }

    pub(super) fn checks(&self, dialog: &Dialog, data: &Data) -> Vec<Check> {
        let Some(holding) = self.holding(data) else {
            return vec![Check::bad("the process has gone")];
        };
        let total = data
            .sample
            .devices
            .get(self.gpu)
            .map_or(0, |d| d.total_bytes);
        if dialog.value("New").is_empty() {
            return vec![Check::warn(EMPTY)];
        }
        let value = match parse(dialog.value("New"), holding.quota_bytes, total) {
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
        let concerned = process
            .devices
            .iter()
            .filter(|h| everywhere || h.gpu == self.gpu);
        let mut checks: Vec<Check> = concerned
            .flat_map(|holding| effect(data, holding, value))
            .collect();
        let hidden = (checks.len() / 2).saturating_sub(LINES);
        checks.truncate(2 * LINES);
        if hidden > 0 {
            checks.push(Check::good(format!("and {hidden} more GPUs")));
        }
        if let Some(bytes) = bytes(value, total) {
            checks.push(self.sum(data, bytes, total));
        }
        checks.extend(group(data, process, self.gpu));
        checks
    }

    /// What all quotas on the device would add up to.
    fn sum(&self, data: &Data, bytes: u64, total: u64) -> Check {
        let others = data
            .sample
            .holdings(self.gpu)
            .filter(|(p, _)| p.slot != Some(self.slot));
        let sum = others
            .filter_map(|(_, h)| h.quota_bytes)
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
        let holding = self.holding(data).ok_or("the process has gone")?;
        let total = data
            .sample
            .devices
            .get(self.gpu)
            .map_or(0, |d| d.total_bytes);
        let value = parse(dialog.value("New"), holding.quota_bytes, total)?;
        let everywhere = dialog.chosen("On") == 1;
        let seconds = SPANS[dialog.chosen("For")].1;
        let change = Change::ProcessQuota {
            slot: self.slot.into(),
            device: if everywhere { None } else { self.entry },
            value,
            until: (seconds > 0).then(|| {
                let span = seconds * 1_000_000_000;
                Until::lasting(data.sample.time_ns.saturating_add(span))
            }),
        };
        let target = if everywhere {
            self.name.clone()
        } else {
            format!("{} gpu{}", self.name, self.gpu)
        };
        let mut request = EditRequest::new(change, target, Place::Tui).because(dialog.reason());
        request.target_start_time = Some(self.start_time);
        Ok(request)
    }
}

/// What setting a process's quota would do; `entry` is one of its devices, or none for all.
pub(super) fn foresee(data: &Data, slot: Slot, entry: Option<u8>, value: QuotaValue) -> Vec<Check> {
    let Some(process) = data.process(Who::Slot(slot)) else {
        return vec![Check::bad("the process has gone")];
    };
    if value == QuotaValue::Inherit {
        return vec![Check::good(again(entry.is_none()))];
    }
    let concerned = process
        .devices
        .iter()
        .filter(|h| entry.is_none() || h.entry == entry);
    concerned
        .take(LINES)
        .flat_map(|holding| effect(data, holding, value))
        .collect()
}

/// What holds once a quota is unset, of one device or of all.
fn again(everywhere: bool) -> &'static str {
    if everywhere { AGAIN } else { AGAIN_HERE }
}

/// From what to what on one device, and whether that is less than it holds or ever held.
fn effect(data: &Data, holding: &Holding, value: QuotaValue) -> [Check; 2] {
    let device = data.sample.devices.get(holding.gpu);
    let total = device.map_or(0, |device| device.total_bytes);
    let from = format!(
        "GPU{}: from {} to",
        holding.gpu,
        quota_text(holding.quota_bytes)
    );
    let Some(bytes) = bytes(value, total) else {
        let used = device.and_then(|device| device.used_bytes);
        let used = used.unwrap_or_else(|| data.sample.ledger_bytes(holding.gpu));
        let free = human_size(total.saturating_sub(used));
        return [
            Check::good(format!("{from} no limit")),
            Check::good(format!("it may take all of the {free} that is free")),
        ];
    };
    let (used, peak) = (holding.used_bytes, holding.peak_bytes);
    let judged = if bytes < used {
        Check::warn(format!(
            "over by {}: denied until it frees that; nothing is taken away",
            human_size(used - bytes)
        ))
    } else if bytes < peak {
        Check::warn(format!("below its peak of {}", human_size(peak)))
    } else {
        Check::good("above all it ever held")
    };
    let to = format!("{from} {} ({bytes} bytes)", human_size(bytes));
    [Check::good(to), judged]
}

/// The group's own limit, which stays.
fn group(data: &Data, process: &ProcessSample, gpu: usize) -> Option<Check> {
    let name = process.group.as_ref()?;
    let group = data
        .sample
        .groups
        .iter()
        .find(|group| group.name == *name)?;
    let quota = group.quota_bytes.get(gpu).copied().flatten()?;
    let used = group.used_bytes.get(gpu).copied().unwrap_or(0);
    Some(Check::good(format!(
        "group {name} holds {} of {} there: that limit stays",
        human_size(used),
        human_size(quota)
    )))
}

fn quota_text(bytes: Option<u64>) -> String {
    bytes.map_or("no limit".into(), human_size)
}

fn bytes(value: QuotaValue, total: u64) -> Option<u64> {
    match value {
        QuotaValue::Inherit | QuotaValue::Unlimited => None,
        QuotaValue::Bytes(bytes) => Some(bytes),
        QuotaValue::Percent(percent) => Some(total / 100 * u64::from(percent)),
    }
}

/// Reads a quota; `+2G` and `-10%` are relative to the present one.
fn parse(text: &str, now: Option<u64>, total: u64) -> Result<QuotaValue, String> {
    if let Some(more) = text.strip_prefix('+') {
        return relative(more, now, total, u64::saturating_add);
    }
    if let Some(less) = text.strip_prefix('-') {
        return relative(less, now, total, u64::saturating_sub);
    }
    match text {
        "" => Err(EMPTY.into()),
        "inherit" | "default" => Ok(QuotaValue::Inherit),
        "max" => Ok(QuotaValue::Bytes(total)),
        text => match units::parse_amount(text).map_err(|error| error.to_string())? {
            Amount::Unlimited => Ok(QuotaValue::Unlimited),
            Amount::Bytes(bytes) if total > 0 && bytes > total => Err(format!(
                "the device has only {}; write none for no limit",
                human_size(total)
            )),
            Amount::Bytes(bytes) => Ok(QuotaValue::Bytes(bytes)),
            Amount::Percent(percent) => Ok(QuotaValue::Percent(percent)),
        },
    }
}

fn relative(
    text: &str,
    now: Option<u64>,
    total: u64,
    apply: fn(u64, u64) -> u64,
) -> Result<QuotaValue, String> {
    let now = now.ok_or("there is no quota yet to start from; write a size")?;
    let by = match units::parse_amount(text).map_err(|error| error.to_string())? {
        Amount::Bytes(bytes) => bytes,
        Amount::Percent(percent) => now / 100 * u64::from(percent),
        Amount::Unlimited => return Err("write a size or a share after the sign".into()),
    };
    let bytes = apply(now, by);
    Ok(QuotaValue::Bytes(if total > 0 {
        bytes.min(total)
    } else {
        bytes
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn sizes_shares_and_steps_are_understood() {
        let read = |text| parse(text, Some(8 * GIB), 100 * GIB);
        assert_eq!(read("32G"), Ok(QuotaValue::Bytes(32 * GIB)));
        assert_eq!(read("25%"), Ok(QuotaValue::Percent(25)));
        assert_eq!(read("+2G"), Ok(QuotaValue::Bytes(10 * GIB)));
        assert_eq!(
            read("-50%"),
            Ok(QuotaValue::Bytes(8 * GIB - 8 * GIB / 100 * 50))
        );
        assert_eq!(read("max"), Ok(QuotaValue::Bytes(100 * GIB)));
        assert_eq!(read("none"), Ok(QuotaValue::Unlimited));
        assert_eq!(read("inherit"), Ok(QuotaValue::Inherit));
        assert!(read("200G").unwrap_err().contains("has only"));
        assert!(read("8Q").is_err());
        assert!(read("").is_err());
        assert!(parse("+2G", None, 100 * GIB).is_err());
    }
}
