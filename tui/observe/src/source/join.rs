//! The join of the segments' snapshot and NVML's answers into the processes and devices of one sample.

use std::mem;

use rustc_hash::FxHashSet;
use shm_layout::{DEVICE_MIG, DEVICE_SIM, DeviceView, Liveness, MAX_DEVICES, ProcessView, Uuid};

use super::nvml;
use gpushare_base::text::{cgroups, uuids};
use gpushare_sample::{DeviceSample, Holding, ProcessSample, ProcessState, Sample, SlotId};

/// Time for which a dead process is shown, if its slot has not been released by then.
const GONE_NS: u64 = 3_000_000_000;

/// Returns the devices: NVML's first, in its order; then those that only the segment has.
pub(super) fn devices(views: Vec<DeviceView>, look: &nvml::Look) -> Vec<DeviceSample> {
    let mut devices: Vec<DeviceSample> = look.devices.iter().map(seen_by_nvml).collect();
    for view in views {
        match position(&devices, &view.uuid) {
            Some(at) => add_segment(&mut devices[at], view),
            None => devices.push(DeviceSample {
                uuid: uuids::format(view.uuid, view.flags & DEVICE_MIG != 0),
                view,
                ..DeviceSample::default()
            }),
        }
    }
    devices
}

fn seen_by_nvml(device: &nvml::Device) -> DeviceSample {
    let flag = |set, flag| if set { flag } else { 0 };
    DeviceSample {
        uuid: device.uuid.clone(),
        view: DeviceView {
            // The segment does not have this device.
            index: u8::MAX,
            name: device.name.clone(),
            total_bytes: device.total_bytes,
            flags: flag(device.name.contains("Simulated"), DEVICE_SIM)
                | flag(device.uuid.starts_with("MIG-"), DEVICE_MIG),
            ..DeviceView::default()
        },
        used_bytes: device.used_bytes,
        nvml: device.figures.clone(),
    }
}

fn add_segment(device: &mut DeviceSample, view: DeviceView) {
    let seen = mem::replace(&mut device.view, view);
    device.flags |= seen.flags;
    if !seen.name.is_empty() {
        device.name = seen.name;
    }
    if seen.total_bytes > 0 {
        device.total_bytes = seen.total_bytes;
    }
}

/// Positions in the sample's list of the segment's devices, by their index in the segment.
pub(super) struct Places([Option<usize>; MAX_DEVICES]);

impl Places {
    pub(super) fn of(devices: &[DeviceSample]) -> Self {
        let mut places = [None; MAX_DEVICES];
        for (at, device) in devices.iter().enumerate() {
            if let Some(place) = places.get_mut(usize::from(device.index)) {
                place.get_or_insert(at);
            }
        }
        Self(places)
    }

    pub(super) fn of_index(&self, index: u8) -> Option<usize> {
        self.0.get(usize::from(index)).copied().flatten()
    }
}

fn position(devices: &[DeviceSample], uuid: &Uuid) -> Option<usize> {
    devices
        .iter()
        .position(|d| uuids::parse(&d.uuid).as_ref() == Some(uuid))
}

/// Moves a managed process's holdings to the positions of the sample's list, without NVML's figures.
pub(super) fn place(holdings: &mut Vec<Holding>, places: &Places) {
    holdings.retain_mut(|Holding { gpu, view, nvml }| {
        let place = places.of_index(view.device);
        *gpu = place.unwrap_or_default();
        *nvml = nvml::Process::default();
        place.is_some()
    });
}

/// Returns the container of a process: from the broker if it vouches for one, else from the cgroup.
pub(super) fn container(view: &ProcessView<Holding>) -> Option<String> {
    match &view.vouched {
        Some(vouched) => Some(vouched.container.clone()).filter(|name| !name.is_empty()),
        None => cgroups::container(&view.identity.cgroup),
    }
}

/// Reports whether a slot belongs to a process that died when no other process was left to release the slot. The next
/// process to attach releases it; until then it holds nothing.
pub(super) fn is_long_gone(view: &ProcessView<Holding>, now_ns: u64) -> bool {
    view.alive == Liveness::Dead && now_ns.saturating_sub(view.heartbeat_ns) > GONE_NS
}

/// Removes processes that no longer exist from the devices' locks.
pub(super) fn forget_the_gone(sample: &mut Sample) {
    let present: FxHashSet<SlotId> = sample.processes.iter().filter_map(|p| p.slot()).collect();
    for device in &mut sample.devices {
        device.owner = device.owner.filter(|slot| present.contains(slot));
        device.waiters.retain(|slot| present.contains(slot));
    }
}

/// Joins NVML's process lists to the managed processes. A process of NVML without a slot is unmanaged, if it still
/// exists.
pub(super) fn add_nvml_processes(
    sample: &mut Sample,
    look: &nvml::Look,
    has_left: impl Fn(u32) -> bool,
) {
    let processes = &mut sample.processes;
    for (gpu, device) in look.devices.iter().enumerate() {
        for seen in &device.processes {
            let known = processes.iter().position(|p| p.pid == Some(seen.pid));
            if known.is_none() && has_left(seen.pid) {
                continue;
            }
            let at = known.unwrap_or_else(|| {
                processes.push(ProcessSample {
                    pid: Some(seen.pid),
                    state: ProcessState::Unmanaged,
                    ..ProcessSample::default()
                });
                processes.len() - 1
            });
            let process = &mut processes[at];
            let managed = process.is_managed();
            let at = process.devices.iter().position(|h| h.gpu == gpu);
            if at.is_none() && managed {
                continue;
            }
            let at = at.unwrap_or_else(|| {
                process.devices.push(Holding {
                    gpu,
                    ..Holding::default()
                });
                process.devices.len() - 1
            });
            let holding = &mut process.devices[at];
            holding.nvml = *seen;
            if !managed {
                holding.used = seen.bytes.unwrap_or(0);
            }
        }
    }
    processes.sort_by_key(|p| (!p.is_managed(), p.slot(), p.pid));
}
