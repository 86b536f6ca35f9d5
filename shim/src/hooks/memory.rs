//! Hooks for memory: allocations, frees, and the memory sizes reported to the application.
//!
//! Their guarantees: an allocation is charged with its requested bytes before the driver is called. The driver is
//! called once, and again only after a refusal that was waited out. What the driver refuses is uncharged. An
//! allocation that would exceed a quota never reaches the driver and returns `CUDA_ERROR_OUT_OF_MEMORY`. A free of an
//! unknown address goes to the driver unchanged.
//!
//! ```text
//!   allocate    reserve ──▶ driver ──▶ commit, add the record        (denied, or refused by the driver: release,
//!                                                                     or wait in the queue and start again: `allocate`)
//!   free        remove the record ──▶ driver ──▶ release             (refused by the driver: add the record again)
//! ```
//!
//! The record is removed *before* the driver frees, so that an address can be reused safely: when another thread can
//! get the same address, the old record is gone.

pub mod account;
pub mod allocate;
pub mod array;
mod backing;
mod caches;
pub mod code;
pub mod graph;
pub mod host;
pub mod import;
pub mod linear;
pub mod multicast;
pub mod nvml;
pub mod physical;
mod plenty;
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

use code::InNoAccount;

use crate::{
    hooks::Real,
    managed_process::{self, ManagedProcess, attach},
    tracking::{
        record::{self, Kind, Record},
        untracked_frees::RecordsOut,
    },
};

/// Forwards `cuDevicePrimaryCtxRetain`, and records the device's primary context.
pub fn primary_retain(
    real: Real<'_, impl FnOnce() -> CUresult + Copy>,
    context: Out<CUcontext>,
    device: CUdevice,
) -> CUresult {
    returns::wait_before_a_primary(device);
    create_context(&real, device)?;
    let primary = managed_process::current().and_then(|process| process.memory.primary(device));
    if let (Some(primary), Some(context)) = (primary, context.get()) {
        primary.retained(context as usize);
    }
    Ok(())
}

/// Calls the driver for a context, again once a full device has room for it.
pub fn create_context(
    real: &Real<'_, impl FnOnce() -> CUresult + Copy>,
    device: CUdevice,
) -> CUresult {
    attach::goes_on()?;
    InNoAccount::context(real.symbol(), device).call(|| real.again())
}

/// The records of contexts that are about to end. They are removed from the tracking before the driver is called,
/// because a context that another thread creates may get the same handle at once. Other threads may free such memory, in case
/// that the contexts do not end.
#[must_use = "what is taken out is given back or put back"]
pub struct Held<'p> {
    out: RecordsOut<'p>,
    device: CUdevice,
    contexts: Vec<u64>,
    is_primary: bool,
    records: Vec<(u64, Record)>,
}

/// Removes the records of a created context on a device.
///
/// Physical memory and the memory of graphs belong to the process and remain (measured: also after a reset). Memory
/// from pools ends with a primary context, and remains when a created one ends (also measured).
pub fn held_by(process: &ManagedProcess, context: CUcontext, device: CUdevice) -> Held<'_> {
    take_out(process, device, vec![context as u64], false)
}

/// Removes the records of a device's primary context and of its green contexts.
pub fn held_by_primary(process: &ManagedProcess, device: CUdevice) -> Held<'_> {
    let contexts = process.memory.primary_and_greens(device);
    take_out(process, device, contexts, true)
}

fn take_out(
    process: &ManagedProcess,
    device: CUdevice,
    contexts: Vec<u64>,
    is_primary: bool,
) -> Held<'_> {
    let out = process.memory.untracked_frees.take_out();
    let mut records = Vec::new();
    let goes = |record: &Record| {
        contexts.contains(&record::context(record)) && (is_primary || !record::is_of_a_pool(record))
    };
    if !contexts.is_empty() {
        let live = &process.memory.allocations;
        live.drain(goes, |key, record| records.push((key, record)));
    }
    Held {
        out,
        device,
        contexts,
        is_primary,
        records,
    }
}

impl Held<'_> {
    /// Uncharges the memory after the driver has ended the contexts.
    pub fn gone(self, process: &ManagedProcess) {
        let memory = &process.memory;
        let graphs = memory.captures.contexts_gone(&self.contexts);
        memory.graphs.lost(&graphs);
        for context in &self.contexts {
            memory.remove_context(*context as usize);
        }
        if self.is_primary {
            memory.forget_greens(self.device);
            if !memory.has_created_contexts() {
                memory.graphs.default_streams_gone(self.device);
            }
        }
        let put_off = memory.swappable.take_late_of(&self.contexts);
        for (key, record) in self.records.into_iter().chain(put_off) {
            if record::is(&record, Kind::Swappable) {
                // The driver frees only memory that it has allocated in the context itself.
                let _ = backing::abandon(process, key);
            }
            account::release_record(process, &record);
        }
        swappable::free_late(process);
    }

    /// Adds the records again because the contexts have not ended, and uncharges memory that was freed in between.
    pub fn stays(self, process: &ManagedProcess) {
        let live = &process.memory.allocations;
        let put = |key, record| live.put_elsewhere(key, record);
        for record in self.out.put_back(self.records, put) {
            account::release_record(process, &record);
        }
    }
}

/// Releases the graph memory of a stream that is about to be destroyed, once its launches are done.
pub fn stream_gone(process: &ManagedProcess, stream: usize) {
    let is_it = |other| (other == stream).then_some(other);
    let used_of = |other| process.use_of_stream(is_it(other)?);
    process.memory.graphs.seal(used_of, None);
}
