//! The predicted effect of an edit, from one sample: the affected processes, and the memory that they hold.

use shm_layout::{Change, GroupEdit, QuotaValue, Set, SlotId};

use super::targets;
use gpushare_base::text::units::human_size;
use gpushare_base::text::uuids;
use gpushare_sample::{DeviceSample, Holding, ProcessSample, Sample};

/// Returns the managed processes that an edit affects.
pub fn concerned<'s>(
    change: &'s Change,
    sample: &'s Sample,
) -> impl Iterator<Item = &'s ProcessSample> {
    sample
        .processes
        .iter()
        .filter(|process| process.is_managed() && concerns(change, process, sample))
}

fn concerns(change: &Change, process: &ProcessSample, sample: &Sample) -> bool {
    let is = |slot: &SlotId| process.slot() == Some(*slot);
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
        | Change::ProcessQuotas { slot, .. }
        | Change::ProcessShare { slot, .. }
        | Change::Trace { slot, .. }
        | Change::Label { slot, .. } => is(slot),
        Change::Policy { device: None, .. } | Change::DeviceMemory { device: None, .. } => true,
        Change::Policy {
            device: Some(uuid), ..
        }
        | Change::DeviceMemory {
            device: Some(uuid), ..
        }
        | Change::DeviceLimit { uuid, .. } => uses(uuid),
        Change::Group { name, .. } => process.group.as_ref() == Some(name),
        Change::Rule { rule: None, .. } => process.rule.is_some(),
        Change::Rule {
            rule: Some(rule), ..
        } => rule.matches(&shm_layout::Traits {
            uid: process.identity.uid,
            group: process.group.clone(),
            executable: process.identity.exe.clone(),
            container: process.container.clone().unwrap_or_default(),
            label: process.identity.label.clone(),
        }),
    }
}

/// The memory that a process, group or device holds, and its quota before and after an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Holder of the memory.
    pub who: String,
    /// Index of the device.
    pub gpu: usize,
    /// Bytes held now.
    pub used_bytes: u64,
    /// Maximum number of bytes ever held.
    pub peak_bytes: u64,
    /// Quota in bytes before the edit; `None` without one.
    pub before_bytes: Option<u64>,
    /// Quota in bytes after the edit; `None` without one.
    pub quota_bytes: Option<u64>,
}

/// State of the edit that an [`Effect`] describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tense {
    /// The edit was not made.
    Would,
    /// The edit is in force.
    Now,
}

impl Effect {
    /// Returns the present holding and quota of a process on one device.
    pub fn present(process: &ProcessSample, holding: &Holding) -> Self {
        Self {
            who: targets::title(process),
            gpu: holding.gpu,
            // Evicted memory counts, because it is restored whatever the quota is then.
            used_bytes: process.own_bytes(holding),
            peak_bytes: holding.peak,
            before_bytes: holding.quota.bytes,
            quota_bytes: holding.quota.bytes,
        }
    }

    /// Returns the bytes held above the quota.
    pub fn excess_bytes(&self) -> Option<u64> {
        self.used_bytes
            .checked_sub(self.quota_bytes?)
            .filter(|excess| *excess > 0)
    }

    /// Returns a sentence if more is held than the quota allows, with the consequence.
    pub fn warning(&self, tense: Tense) -> Option<String> {
        let excess = human_size(self.excess_bytes()?);
        let (who, gpu) = (&self.who, self.gpu);
        let used = human_size(self.used_bytes);
        let quota = human_size(self.quota_bytes?);
        Some(match tense {
            Tense::Would => format!(
                "{who} would be over quota on gpu{gpu}: it holds {used} of {quota}, would keep that, and new \
                 allocations would be refused until it frees {excess}"
            ),
            Tense::Now => format!(
                "{who} holds {used} of {quota} on gpu{gpu}: it keeps that, and new allocations are refused until it \
                 frees {excess}"
            ),
        })
    }
}

/// Returns the effects of an edit of a quota: one entry for each process and device, group and device, or device. Other
/// edits have none.
pub fn effects(change: &Change, target: &str, sample: &Sample) -> Vec<Effect> {
    match change {
        Change::ProcessQuota { device, value, .. } => {
            let holdings = concerned(change, sample).flat_map(|process| {
                let holdings = process.devices.iter();
                holdings.map(move |holding| (process, holding))
            });
            holdings
                .filter(|(_, holding)| device.is_none_or(|entry| holding.entry == entry))
                .map(|(process, holding)| Effect {
                    quota_bytes: bytes(*value, holding.gpu, sample),
                    ..Effect::present(process, holding)
                })
                .collect()
        }
        Change::Group {
            settings:
                GroupEdit {
                    memory: Set::To(value) | Set::For(Some(value), _),
                    ..
                },
            remove: false,
            ..
        } => (0..sample.devices.len())
            .map(|gpu| together(change, target, gpu, *value, sample))
            .collect(),
        Change::DeviceLimit { uuid, value } => {
            let is = |device: &DeviceSample| uuids::parse(&device.uuid).as_ref() == Some(uuid);
            let gpu = sample.devices.iter().position(is);
            gpu.map(|gpu| together(change, "all processes together", gpu, *value, sample))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the memory that all affected processes hold together on one device.
fn together(change: &Change, who: &str, gpu: usize, value: QuotaValue, sample: &Sample) -> Effect {
    let holdings = || concerned(change, sample).filter_map(|process| process.on(gpu));
    let sum = |of: fn(&Holding) -> u64| holdings().map(of).fold(0, u64::saturating_add);
    Effect {
        who: who.to_owned(),
        gpu,
        used_bytes: sum(|holding| holding.used),
        peak_bytes: sum(|holding| holding.peak),
        before_bytes: None,
        quota_bytes: bytes(value, gpu, sample),
    }
}

/// Returns a quota in bytes on one device of the sample.
fn bytes(value: QuotaValue, gpu: usize, sample: &Sample) -> Option<u64> {
    let device = sample.devices.get(gpu);
    value.of_device(device.map_or(0, |device| device.total_bytes))?
}
