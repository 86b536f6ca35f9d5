//! The hook for a cooperative launch on several devices, whose kernels wait for each other.
//!
//! The locks are acquired in device order, like all locks, and all are kept until the launch: the thread counts as
//! inside each device that it was admitted to, so no keeper releases that device first. A launch that waits for a
//! later lock longer than the `grace` of an earlier device loses the earlier one by force, and starts again.

use gpushare_abi::{In, errors::CUresult, types::CUDA_LAUNCH_PARAMS};

use crate::{
    admission,
    driver_query::context,
    eviction,
    hooks::Real,
    managed_process::{Bypass, Device, ManagedProcess, attach},
    thread::{self, Thread, Used, add},
    trace,
};

/// Number of attempts after which the launch is made with the locks that it has, so that it is not delayed forever.
const MAX_ATTEMPTS: u32 = 16;

/// A submission inside the gates of all its devices.
struct MultiDevice {
    process: &'static ManagedProcess,
    thread: &'static Thread,
    parts: Vec<Part>,
}

/// A device of the submission.
struct Part {
    device: &'static Device,
    used: Used,
    /// The submission is counted, so the turn may end after it.
    counted: bool,
}

/// Forwards `cuLaunchCooperativeKernelMultiDevice`.
pub fn launch(
    real: Real<'_, impl FnOnce() -> CUresult>,
    list: In<CUDA_LAUNCH_PARAMS>,
    count: u32,
) -> CUresult {
    let streams = (0..count as usize).map_while(|index| Some(list.nth(index)?.hStream as usize));
    let streams: Vec<_> = streams.collect();
    let thread = real.thread();
    let launch = loop {
        match decide(&streams) {
            Ok(launch) => break Some(launch),
            // The process was evicted during the wait for a lock.
            Err(Bypass::Evicted) if !eviction::passes_suspension(thread) => {
                eviction::wait_until_resumed(thread)?
            }
            Err(why) => {
                admission::count(why);
                break None;
            }
        }
    };
    let answer = real.call();
    if let Some(launch) = launch {
        launch.finish();
    }
    answer
}

fn decide(streams: &[usize]) -> Result<MultiDevice, Bypass> {
    let process = attach::current_or_attach().ok_or(Bypass::Unmanaged)?;
    let thread = thread::attached();
    if process.is_leaving() {
        return Err(Bypass::Leaving);
    }
    let mut parts = Vec::new();
    for &key in streams {
        let used = process.use_of_stream(key).ok_or(Bypass::NoContext)?;
        let device = process
            .device(used.ordinal.into())
            .ok_or(Bypass::UnknownDevice)?;
        if context::is_capturing(key) {
            add(&thread.tally(used.ordinal).captured, 1);
            return Err(Bypass::Capturing);
        }
        parts.push(Part {
            device,
            used,
            counted: false,
        });
    }
    parts.sort_by_key(|part| part.device.entry.device());
    parts.dedup_by_key(|part| part.device.entry.device());
    let mut launch = MultiDevice {
        process,
        thread,
        parts,
    };
    launch.enter()?;
    Ok(launch)
}

impl MultiDevice {
    fn enter(&mut self) -> Result<(), Bypass> {
        for _ in 0..MAX_ATTEMPTS {
            self.thread.unbind();
            for part in &mut self.parts {
                let waiting = trace::waits();
                let admitted = part
                    .device
                    .turn
                    .admit(self.process, part.device, self.thread);
                waiting.ended(part.device.ordinal);
                part.counted = admitted.inspect_err(|_| self.thread.leave_all())? != 0;
            }
            let process = self.process;
            if self
                .parts
                .iter()
                .all(|part| part.device.turn.is_ours(process, part.device))
            {
                return Ok(());
            }
            self.thread.leave_all();
        }
        Err(Bypass::Crowded)
    }

    /// Counts the launch after the driver has returned.
    fn finish(self) {
        for part in &self.parts {
            add(&self.thread.tally(part.device.ordinal).launches, 1);
            drop(self.thread.note_used(part.used));
        }
        self.thread.leave_all();
        for part in self.parts.iter().filter(|part| part.counted) {
            part.device
                .turn
                .after_counted(self.process, part.device, part.used, (1, false));
        }
    }
}

impl Drop for MultiDevice {
    /// Marks the thread as outside, also after a panic.
    fn drop(&mut self) {
        self.thread.leave_all();
    }
}
