//! How an edit is made: with which reason, or only tried.
//!
//! Every verb that edits has these options and goes through [`make`], so a dry run says of each what the
//! edit itself would meet: the same checks, the same refusals, the value that is there now.

use std::io::Write;

use shm_layout::{Change, QuotaValue, Set, SlotId};

use super::{note, world};
use crate::edit::targets;
use crate::edit::{EditRequest, Editor, StoredChange};
use crate::sample::{Holding, ProcessSample, Sample};
use crate::text::exit::Failure;
use crate::text::units::human_size;
use crate::text::uuids;

/// The options of every edit.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Manner {
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Show what would change, for how many, and who would be over quota; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

impl Manner {
    /// Does the edits, or says what they would do.
    pub fn make(
        &self,
        editor: &Editor,
        requests: Vec<EditRequest>,
        sample: &Sample,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if self.dry_run {
            preview(editor, &requests, sample, out)
        } else {
            world::apply_all(editor, requests, sample, out)
        }
    }
}

/// One line for each edit, then what would follow from it.
pub fn preview(
    editor: &Editor,
    requests: &[EditRequest],
    sample: &Sample,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    for request in requests {
        let old = editor.preview(&request.change, &request.target)?;
        writeln!(
            out,
            "{}: {} (now: {}); {}",
            request.target,
            StoredChange::from(&request.change).summary(),
            StoredChange::from(&old).summary(),
            reach(&request.change, sample)
        )?;
        for (who, used, quota, gpu) in over(&request.change, &request.target, sample) {
            note(&format!(
                "{who} would be over quota on gpu{gpu}: it holds {} of {}, would keep that and be refused more until \
                 it frees {}",
                human_size(used),
                human_size(quota),
                human_size(used - quota)
            ));
        }
    }
    let edits = match requests.len() {
        1 => "1 edit".to_owned(),
        count => format!("{count} edits"),
    };
    writeln!(out, "dry run: {edits} would be made, nothing was changed")?;
    Ok(())
}

/// For how many it holds.
fn reach(change: &Change, sample: &Sample) -> String {
    let count = sample
        .processes
        .iter()
        .filter(|process| process.slot.is_some() && concerns(change, process, sample))
        .count();
    match count {
        0 => "nobody runs there yet".to_owned(),
        1 => "for 1 process".to_owned(),
        count => format!("for {count} processes"),
    }
}

fn concerns(change: &Change, process: &ProcessSample, sample: &Sample) -> bool {
    let is = |slot: &SlotId| process.slot == Some((*slot).into());
    let uses = |uuid: &shm_layout::Uuid| {
        let device = |holding: &Holding| sample.devices.get(holding.gpu);
        process
            .devices
            .iter()
            .filter_map(device)
            .any(|device| uuids::parse(&device.uuid).as_ref() == Some(uuid))
    };
    match change {
        Change::ProcessQuota { slot, .. }
        | Change::ProcessShare { slot, .. }
        | Change::Trace { slot, .. } => is(slot),
        Change::Policy { device: None, .. } => true,
        Change::Policy {
            device: Some(uuid), ..
        }
        | Change::DeviceLimit { uuid, .. } => uses(uuid),
        Change::Group { name, .. } => process.group.as_ref() == Some(name),
    }
}

/// Who would hold more than it may: who, how much, of how much, where.
fn over(change: &Change, target: &str, sample: &Sample) -> Vec<(String, u64, u64, usize)> {
    let concerned = || {
        let managed = sample.processes.iter().filter(|p| p.slot.is_some());
        managed.filter(|process| concerns(change, process, sample))
    };
    let mut all = Vec::new();
    match change {
        Change::ProcessQuota { device, value, .. } => {
            for process in concerned() {
                for holding in &process.devices {
                    if device.is_none() || holding.entry == *device {
                        let quota = bytes(*value, holding.gpu, sample);
                        all.push((
                            targets::title(process),
                            holding.used_bytes,
                            quota,
                            holding.gpu,
                        ));
                    }
                }
            }
        }
        Change::Group {
            memory: Set::To(value),
            remove: false,
            ..
        } => {
            for gpu in 0..sample.devices.len() {
                all.push((
                    target.to_owned(),
                    sum(concerned(), gpu),
                    bytes(*value, gpu, sample),
                    gpu,
                ));
            }
        }
        Change::DeviceLimit { uuid, value } => {
            let is = |device: &crate::sample::DeviceSample| {
                uuids::parse(&device.uuid).as_ref() == Some(uuid)
            };
            if let Some(gpu) = sample.devices.iter().position(is) {
                let everybody = "everybody together".to_owned();
                all.push((
                    everybody,
                    sum(concerned(), gpu),
                    bytes(*value, gpu, sample),
                    gpu,
                ));
            }
        }
        _ => {}
    }
    let exceeds = |(who, used, quota, gpu): (String, u64, Option<u64>, usize)| {
        let quota = quota.filter(|quota| used > *quota)?;
        Some((who, used, quota, gpu))
    };
    all.into_iter().filter_map(exceeds).collect()
}

fn sum<'p>(processes: impl Iterator<Item = &'p ProcessSample>, gpu: usize) -> u64 {
    processes
        .filter_map(|process| process.on(gpu))
        .fold(0, |sum, holding| sum.saturating_add(holding.used_bytes))
}

/// A quota in bytes, where it says one itself.
fn bytes(value: QuotaValue, gpu: usize, sample: &Sample) -> Option<u64> {
    let total = sample
        .devices
        .get(gpu)
        .map_or(0, |device| device.total_bytes);
    match value {
        QuotaValue::Bytes(bytes) => Some(bytes),
        QuotaValue::Percent(percent) => {
            u64::try_from(u128::from(total) * u128::from(percent) / 100).ok()
        }
        QuotaValue::Inherit | QuotaValue::Unlimited => None,
    }
}
