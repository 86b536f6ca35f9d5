//! From the segment's snapshot and NVML's look to one sample.

use std::collections::HashSet;

use shm_layout::trace::TraceView;
use shm_layout::{
    DEVICE_MIG, DEVICE_SIM, DeviceView, GroupView, Liveness, LockView, ProcessDeviceView,
    ProcessView, QuotaValue, Snapshot, Source, Uuid,
};

use super::nvml;
use crate::sample::{
    ALL_REASONS, DeviceSample, GroupSample, Holding, Lock, LockState, PolicyKind, ProcessSample,
    ProcessState, Reason, STUCK_NS, Sample, SlotId,
};
use crate::text::quota;
use crate::text::uuids;

/// The dead are shown for this long, if nobody has cleaned up after them by then.
const GONE_NS: u64 = 3_000_000_000;

/// The devices: NVML's first, in its order; then those only the segment knows.
pub(super) fn devices(snapshot: &Snapshot, look: &nvml::Look) -> Vec<DeviceSample> {
    let mut devices: Vec<DeviceSample> = look.devices.iter().map(seen_by_nvml).collect();
    for view in &snapshot.devices {
        let at = position(&devices, &view.uuid).unwrap_or_else(|| {
            devices.push(seen_by_workloads(view));
            devices.len() - 1
        });
        add_lock(&mut devices[at], view);
    }
    devices
}

fn seen_by_nvml(device: &nvml::Device) -> DeviceSample {
    DeviceSample {
        uuid: device.uuid.clone(),
        name: device.name.clone(),
        sim: device.name.contains("Simulated"),
        mig: device.mig,
        total_bytes: device.total_bytes,
        used_bytes: device.used_bytes,
        util_percent: device.util_percent,
        mem_util_percent: device.mem_util_percent,
        power_mw: device.power_mw,
        power_limit_mw: device.power_limit_mw,
        temperature_c: device.temperature_c,
        clock_mhz: device.clock_mhz,
        pstate: device.pstate,
        policy_source: Source::Default.word().to_owned(),
        ..DeviceSample::default()
    }
}

fn seen_by_workloads(view: &DeviceView) -> DeviceSample {
    let mig = view.flags & DEVICE_MIG != 0;
    DeviceSample {
        uuid: uuids::format(view.uuid, mig),
        name: view.name.clone(),
        mig,
        total_bytes: view.total_bytes,
        ..DeviceSample::default()
    }
}

fn add_lock(device: &mut DeviceSample, view: &DeviceView) {
    let (policy, source) = view.policy;
    device.sim |= view.flags & DEVICE_SIM != 0;
    device.segment_index = Some(view.index);
    device.owner = view.owner;
    device.owner_since_ns = view.owner_since_ns;
    device.waiters = view.waiters.clone();
    device.policy = policy;
    device.policy_source = source.word().to_owned();
    device.limit_bytes = view.limit;
    device.handoffs = view.handoffs;
    device.forced = view.forced;
    device.takeovers = view.takeovers;
    device.last_handoff_ns = view.last_handoff_ns;
    device.handoff_hist = view.handoff_hist;
    device.violations = view.violations;
    device.picks = view.picks;
    if device.name.is_empty() {
        device.name.clone_from(&view.name);
    }
    if device.total_bytes == 0 {
        device.total_bytes = view.total_bytes;
    }
}

/// Where the device with this index in the segment stands in the list.
pub(super) fn shown_as(devices: &[DeviceSample], index: u8) -> Option<usize> {
    devices.iter().position(|d| d.segment_index == Some(index))
}

fn position(devices: &[DeviceSample], uuid: &Uuid) -> Option<usize> {
    devices
        .iter()
        .position(|d| uuids::parse(&d.uuid).as_ref() == Some(uuid))
}

/// The managed process of one slot, without what `/proc` adds.
pub(super) fn process(view: &ProcessView, now_ns: u64, devices: &[DeviceSample]) -> ProcessSample {
    let holdings: Vec<Holding> = view
        .devices
        .iter()
        .filter_map(|d| Some(holding(d, shown_as(devices, d.device)?)))
        .collect();
    ProcessSample {
        slot: Some(view.slot),
        pid: None,
        ns_pid: view.identity.pid,
        start_time: view.identity.start_time,
        uid: Some(view.identity.uid),
        user: view.identity.uid.to_string(),
        label: view.identity.label.clone(),
        exe: view.identity.exe.clone(),
        container: super::container::of_cgroup(&view.identity.cgroup),
        cgroup: view.identity.cgroup.clone(),
        group: view.group.clone(),
        state: state(view, now_ns, &holdings),
        weight: view.share.weight,
        priority: view.share.priority,
        cap_percent: view.share.cap,
        share_source: view.share.source.word().to_owned(),
        paused: view.share.paused,
        boost_until_ns: view.share.boost_until_ns,
        invalid: view.invalid,
        registered_ns: view.registered_ns,
        heartbeat_ns: view.heartbeat_ns,
        acknowledged: view.acked,
        trace: trace(&view.trace),
        devices: holdings,
    }
}

/// Is this the slot of a process that died when nobody was left to give it back? The next to come will; until then it
/// holds nothing any more.
pub(super) fn is_long_gone(view: &ProcessView, now_ns: u64) -> bool {
    view.alive == Liveness::Dead && now_ns.saturating_sub(view.heartbeat_ns) > GONE_NS
}

/// Takes who is no longer there out of the devices' locks.
pub(super) fn forget_the_gone(sample: &mut Sample) {
    let present: HashSet<SlotId> = sample.processes.iter().filter_map(|p| p.slot).collect();
    for device in &mut sample.devices {
        device.owner = device.owner.filter(|slot| present.contains(slot));
        device.waiters.retain(|slot| present.contains(slot));
    }
}

fn state(view: &ProcessView, now_ns: u64, holdings: &[Holding]) -> ProcessState {
    let any = |state| holdings.iter().any(|h| h.lock.state == state);
    let silent = now_ns.saturating_sub(view.heartbeat_ns) > STUCK_NS;
    match view.alive {
        Liveness::Dead => ProcessState::Gone,
        Liveness::Live if silent && view.heartbeat_ns > 0 => ProcessState::Stuck,
        _ if view.share.paused => ProcessState::Paused,
        _ if any(LockState::Hold) => ProcessState::Hold,
        _ if any(LockState::Wait) => ProcessState::Wait,
        _ => ProcessState::Idle,
    }
}

/// A process that nobody traces, and that writes no logs of its own, has no trace.
fn trace(view: &TraceView) -> Option<TraceView> {
    (view.goes_on() || view.progress.logs).then_some(*view)
}

fn holding(view: &ProcessDeviceView, gpu: usize) -> Holding {
    let counters = &view.counters;
    let (policy, source) = view.policy;
    Holding {
        gpu,
        entry: Some(view.entry),
        ordinal: Some(view.ordinal),
        used_bytes: view.used,
        peak_bytes: view.peak,
        nvml_bytes: None,
        util_percent: None,
        quota_bytes: view.quota.bytes,
        quota_source: view.quota.source.word().to_owned(),
        quota_until_ns: view.quota_until_ns,
        denials: counters.denials,
        launches: counters.launches.saturating_add(counters.graphs),
        copies: counters.copies.saturating_add(counters.memsets),
        copy_bytes: counters.copy_bytes,
        syncs: counters.syncs,
        late_drains: counters.drain_timeouts,
        pinned_bytes: counters.host_pinned_bytes,
        bypasses: counters.bypasses,
        lock: lock(&view.lock, policy.kind, source),
    }
}

fn lock(view: &LockView, rule: PolicyKind, source: Source) -> Lock {
    let mut ends: Vec<(Reason, u64)> = ALL_REASONS
        .into_iter()
        .zip(view.releases)
        .filter(|(_, count)| *count > 0)
        .collect();
    ends.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Lock {
        state: view.state,
        since_ns: view.since_ns,
        rule,
        rule_source: source.word().to_owned(),
        held_ns: view.held_ns,
        waited_ns: view.waited_ns,
        acquisitions: view.acquisitions,
        forced: view.forced,
        hold_hist: view.hold_hist,
        wait_hist: view.wait_hist,
        ends,
        waited_for: view.waited_for.clone(),
    }
}

/// Joins NVML's process lists to the managed ones; what is left over is unmanaged.
pub(super) fn add_nvml_processes(sample: &mut Sample, look: &nvml::Look) {
    for (gpu, device) in look.devices.iter().enumerate() {
        for seen in &device.processes {
            let known = sample
                .processes
                .iter()
                .position(|p| p.pid == Some(seen.pid));
            let process = match known {
                Some(at) => &mut sample.processes[at],
                None => {
                    sample.processes.push(ProcessSample {
                        pid: Some(seen.pid),
                        state: ProcessState::Unmanaged,
                        ..ProcessSample::default()
                    });
                    sample.processes.last_mut().expect("it was just pushed")
                }
            };
            let managed = process.slot.is_some();
            let at = match process.devices.iter().position(|h| h.gpu == gpu) {
                Some(at) => at,
                None if managed => continue,
                None => {
                    process.devices.push(Holding {
                        gpu,
                        ..Holding::default()
                    });
                    process.devices.len() - 1
                }
            };
            let holding = &mut process.devices[at];
            holding.nvml_bytes = seen.bytes;
            holding.util_percent = seen.util_percent;
            if !managed {
                holding.used_bytes = seen.bytes.unwrap_or(0);
            }
        }
    }
    sample
        .processes
        .sort_by_key(|p| (p.slot.is_none(), p.slot, p.pid));
}

/// The groups with what their members hold.
pub(super) fn groups(views: &[GroupView], sample: &Sample) -> Vec<GroupSample> {
    let group = |view: &GroupView| {
        let used = |gpu: usize| -> u64 {
            let members = sample
                .holdings(gpu)
                .filter(|(p, _)| p.group.as_ref() == Some(&view.name));
            members
                .map(|(_, h)| h.used_bytes)
                .fold(0, u64::saturating_add)
        };
        GroupSample {
            name: view.name.clone(),
            defined: view.defined,
            quota: match view.memory {
                QuotaValue::Inherit => String::new(),
                value => value.to_string(),
            },
            quota_bytes: sample
                .devices
                .iter()
                .map(|d| quota::bytes(view.memory, d.total_bytes))
                .collect(),
            weight: view.weight,
            cap_percent: view.cap,
            members: u32::try_from(view.members.len()).unwrap_or(u32::MAX),
            used_bytes: (0..sample.devices.len()).map(used).collect(),
        }
    };
    views.iter().map(group).collect()
}
