//! Who is on a device: how much memory each process holds, and how much of the engine it had.

use crate::answer::{Fault, INSUFFICIENT_SIZE, NOT_FOUND, NOT_SUPPORTED, NvmlReturn};
use crate::board::Board;
use crate::c::{Handle, Out, OutText, ProcessInfo, ProcessInfoV1, ProcessSample};

/// What the instance ids of a process on a whole GPU read as.
const NO_INSTANCE: u32 = u32::MAX;

/// The compute processes of a GPU with those of all its instances, or those of one instance.
fn on(board: &Board) -> Vec<ProcessInfo> {
    let mut found = Vec::new();
    let mut add = |unit, gpu_instance, compute_instance| {
        found.extend(board.view.usage(unit).iter().map(|usage| ProcessInfo {
            pid: usage.pid,
            used_bytes: usage.bytes,
            gpu_instance,
            compute_instance,
        }));
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
    infos.fill(count, &on(&Board::of(device)?))
}

/// `nvmlDeviceGetComputeRunningProcesses` of old, without instances.
pub(crate) fn compute_v1(device: Handle, count: Out<u32>, infos: Out<ProcessInfoV1>) -> NvmlReturn {
    let old: Vec<_> = on(&Board::of(device)?)
        .iter()
        .map(|info| ProcessInfoV1 {
            pid: info.pid,
            used_bytes: info.used_bytes,
        })
        .collect();
    infos.fill(count, &old)
}

/// No process draws on a simulated GPU, and there is no MPS server.
pub(crate) fn none(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) -> NvmlReturn {
    Board::of(device)?;
    infos.fill(count, &[])
}

/// `nvmlDeviceGetProcessUtilization`: one sample for each process with work after `last_seen_us`.
///
/// As on a real GPU: none newer is `NOT_FOUND`, a GPU in MIG mode does not say.
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
            samples.push(ProcessSample {
                pid: usage.pid,
                time_us,
                sm: usage.busy_percent,
                // Kernels touch no memory here; take them for half as busy there.
                memory: usage.busy_percent / 2,
                encoder: 0,
                decoder: 0,
            });
        }
    }
    Ok(samples)
}

/// The program a process runs, cut to fit.
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
