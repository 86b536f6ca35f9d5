//! Memory: what is allocated, what is left, and what the application is told of it.
//!
//! The reader may rely on this: an allocation is charged, by the bytes that were asked for, before the driver is asked, and
//! the driver is asked once
//! (again only after a refusal that was waited out); what the driver refuses is given back; what would exceed a quota never reaches the driver
//! and is answered with its own `CUDA_ERROR_OUT_OF_MEMORY`. A free of something we do not know goes to the driver untouched.
//!
//! ```text
//!   allocate    reserve ──▶ driver ──▶ commit, remember in Live      (denied, or refused by the driver: give back,
//!                                                                     or wait in line and begin again: `wait`)
//!   free        take out of Live ──▶ driver ──▶ release              (refused by the driver: put back)
//! ```
//!
//! Taking out *before* the driver frees is what makes a reused address safe: by the time another thread can be handed
//! the same address, our record of the old one is gone.

pub mod account;
pub mod allocate;
pub mod array;
mod backing;
mod caches;
pub mod graph;
pub mod host;
pub mod import;
pub mod linear;
pub mod multicast;
pub mod nvml;
pub mod physical;
pub mod pool;
mod reclaim;
pub mod returns;
mod shape;
pub mod sparse;
mod stuck;
pub mod swappable;
pub mod view;

use gpushare_abi::{
    Out,
    errors::CUresult,
    types::{CUcontext, CUdevice},
};

use crate::{
    hooks::Real,
    managed_process::{self, ManagedProcess},
    tracking::{
        allocation_map::Record,
        record::{self, Kind},
    },
};

/// `cuDevicePrimaryCtxRetain`: which context a reset of the device will take away.
pub fn primary_retain(
    real: Real<'_, impl FnOnce() -> CUresult>,
    context: Out<CUcontext>,
    device: CUdevice,
) -> CUresult {
    returns::wait_before_a_context(device);
    real.call()?;
    let primary = managed_process::current().and_then(|process| process.memory.primary(device));
    if let (Some(primary), Some(context)) = (primary, context.get()) {
        primary.retained(context as usize);
    }
    Ok(())
}

/// What contexts hold that are about to end, taken out of the tracking before the driver is asked: a context that another thread
/// creates may have the same handle at once.
#[must_use = "what is taken out is given back or put back"]
pub struct Held {
    device: CUdevice,
    contexts: Vec<u64>,
    is_primary: bool,
    records: Vec<(u64, Record)>,
}

/// What a created context on a device holds.
///
/// Physical memory and what graphs have belong to the process and stay (measured: also over a reset). What pools gave
/// goes with a primary context, and stays when a created one ends (measured too).
pub fn held_by(process: &ManagedProcess, context: CUcontext, device: CUdevice) -> Held {
    take_out(process, device, vec![context as u64], false)
}

/// What a device's primary context holds, and the green ones with it.
pub fn held_by_primary(process: &ManagedProcess, device: CUdevice) -> Held {
    let contexts = process.memory.primary_and_greens(device);
    take_out(process, device, contexts, true)
}

fn take_out(
    process: &ManagedProcess,
    device: CUdevice,
    contexts: Vec<u64>,
    is_primary: bool,
) -> Held {
    let mut records = Vec::new();
    let goes = |record: &Record| {
        contexts.contains(&record::context(record)) && (is_primary || !record::is_of_a_pool(record))
    };
    if !contexts.is_empty() {
        let live = &process.memory.allocations;
        live.drain(goes, |key, record| records.push((key, record)));
    }
    Held {
        device,
        contexts,
        is_primary,
        records,
    }
}

impl Held {
    /// The driver has ended the contexts: what they held is given back.
    pub fn gone(self, process: &ManagedProcess) {
        let memory = &process.memory;
        memory.graphs.context_gone(self.device);
        memory.captures.contexts_gone(&self.contexts);
        for context in &self.contexts {
            memory.remove_context(*context as usize);
        }
        if self.is_primary {
            memory.forget_greens(self.device);
        }
        let put_off = memory.swappable.take_late_of(&self.contexts);
        for (key, record) in self.records.into_iter().chain(put_off) {
            if record::is(&record, Kind::Swappable) {
                // The driver takes away only what it made in the context itself.
                let _ = backing::abandon(process, key);
            }
            account::release_record(process, &record);
        }
        swappable::free_late(process);
    }

    /// They have not ended.
    pub fn stays(self, process: &ManagedProcess) {
        for (key, record) in self.records {
            process.memory.allocations.put_elsewhere(key, record);
        }
    }
}

/// A stream is about to be destroyed.
pub fn stream_gone(process: &ManagedProcess, stream: usize) {
    process.memory.graphs.stream_gone(stream);
}
