//! The processes on a device, with their memory and engine time.

use crate::answer::{Fault, INSUFFICIENT_SIZE, NOT_FOUND, NOT_SUPPORTED, NvmlReturn};
use crate::board::Board;
use crate::c::{Handle, Out, OutText, ProcessInfo, ProcessInfoV1, ProcessSample};

/// The instance id of a process on a whole GPU.
const NO_INSTANCE: u32 = u32::MAX;

/// Returns the compute processes of a GPU and all its instances, or of one instance, each with a flag for MPS clients.
fn on(board: &Board) -> Vec<(ProcessInfo, bool)> {
    let mut found = Vec::new();
    let mut add = |unit, gpu_instance, compute_instance| {
        let mut servers = Vec::new();
        for usage in board.view.usage(unit) {
            let info = |pid, used_bytes| ProcessInfo {
                pid,
                used_bytes,
                gpu_instance,
                compute_instance,
            };
            // An MPS server is listed beside its clients. Its own context takes no memory in the simulator.
            if let Some(server) = usage.server.filter(|server| !servers.contains(server)) {
                servers.push(server);
                found.push((info(server, 0), false));
            }
            found.push((info(usage.pid, usage.bytes), usage.server.is_some()));
        }
    };
    if let (Some(instance), Some(id)) = (board.instance(), board.instance_id()) {
        add(instance.unit, id, 0);
        return found;
    }
    let gpu = board.gpu();
    for (id, instance) in (1..).zip(&gpu.instances) {
        add(instance.unit, id, 0);
    }
    if let Some(unit) = gpu.unit {
        add(unit, NO_INSTANCE, NO_INSTANCE);
    }
    found
}

/// `nvmlDeviceGetComputeRunningProcesses_v2` and `_v3`.
pub(crate) fn compute(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) -> NvmlReturn {
    let all = on(&Board::of(device)?).into_iter();
    infos.fill(count, &all.map(|(info, _)| info).collect::<Vec<_>>())
}

/// `nvmlDeviceGetMPSComputeRunningProcesses_v3`: the MPS clients.
pub(crate) fn mps(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) -> NvmlReturn {
    infos.fill(count, &clients(&Board::of(device)?).collect::<Vec<_>>())
}

/// The first version of `nvmlDeviceGetComputeRunningProcesses`, without instances.
pub(crate) fn compute_v1(device: Handle, count: Out<u32>, infos: Out<ProcessInfoV1>) -> NvmlReturn {
    let all = on(&Board::of(device)?).into_iter();
    infos.fill(count, &old(all.map(|(info, _)| info)))
}

/// The first version of `nvmlDeviceGetMPSComputeRunningProcesses`.
pub(crate) fn mps_v1(device: Handle, count: Out<u32>, infos: Out<ProcessInfoV1>) -> NvmlReturn {
    infos.fill(count, &old(clients(&Board::of(device)?)))
}

fn clients(board: &Board) -> impl Iterator<Item = ProcessInfo> {
    let all = on(board).into_iter();
    all.filter(|(_, mps)| *mps).map(|(info, _)| info)
}

fn old(infos: impl Iterator<Item = ProcessInfo>) -> Vec<ProcessInfoV1> {
    let old = |info: ProcessInfo| ProcessInfoV1 {
        pid: info.pid,
        used_bytes: info.used_bytes,
    };
    infos.map(old).collect()
}

/// Reports no graphics processes.
pub(crate) fn none(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) -> NvmlReturn {
    Board::of(device)?;
    infos.fill(count, &[])
}

/// `nvmlDeviceGetProcessUtilization`: one sample for each process with work after `last_seen_us`.
///
/// As on a real GPU, it returns `NOT_FOUND` if there is no newer sample, and an error in MIG mode.
pub(crate) fn utilization(
    device: Handle,
    samples: Out<ProcessSample>,
    count: Out<u32>,
    last_seen_us: u64,
) -> NvmlReturn {
    let found = samples_of(device, last_seen_us)?;
    if found.is_empty() {
        count.set(0)?;
        return Err(NOT_FOUND);
    }
    if samples.is_null() {
        count.set(found.len() as u32)?;
        return Err(INSUFFICIENT_SIZE);
    }
    samples.fill(count, &found)
}

fn samples_of(device: Handle, last_seen_us: u64) -> Result<Vec<ProcessSample>, Fault> {
    let board = Board::of(device)?;
    let unit = board.whole_gpu()?.unit.ok_or(NOT_SUPPORTED)?;
    let time_us = board.view.sampled_us();
    let mut samples = Vec::new();
    if time_us > last_seen_us {
        for usage in board.view.usage(unit) {
            // The work of MPS clients is reported for their server.
            let pid = usage.server.unwrap_or(usage.pid);
            let of_it = |sample: &&mut ProcessSample| sample.pid == pid;
            let sample = match samples.iter_mut().find(of_it) {
                Some(known) => known,
                None => {
                    samples.push(ProcessSample {
                        pid,
                        time_us,
                        sm: 0,
                        memory: 0,
                        encoder: 0,
                        decoder: 0,
                    });
                    let last = samples.len() - 1;
                    &mut samples[last]
                }
            };
            sample.sm = (sample.sm + usage.busy_percent).min(100);
            // Simulated kernels access no memory; half of their engine time stands for it.
            sample.memory = sample.sm / 2;
        }
    }
    Ok(samples)
}

/// Returns the path of a process's program, truncated to the buffer.
pub(crate) fn name(pid: u32, name: OutText, room: u32) -> NvmlReturn {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).map_err(|_| NOT_FOUND)?;
    let mut text = program.to_string_lossy().into_owned();
    let mut end = text.len().min((room as usize).saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    name.set(room, &text)
}
