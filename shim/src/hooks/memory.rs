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
mod shape;
pub mod sparse;
pub mod swappable;
pub mod view;
mod wait;

use std::sync::atomic::Ordering::Relaxed;

use gpushare_abi::Out;
use gpushare_abi::errors::CUresult;
use gpushare_abi::types::{CUcontext, CUdevice};

use crate::books::record::{self, Kind};
use crate::guest::{Guest, guest};
use crate::real::Real;

/// `cuDevicePrimaryCtxRetain`: which context a reset of the device will take away.
pub fn primary_retain(
    real: Real<'_, impl FnOnce() -> CUresult>,
    context: Out<CUcontext>,
    device: CUdevice,
) -> CUresult {
    real.call()?;
    let primary = guest().and_then(|guest| guest.memory.primary(device));
    if let (Some(primary), Some(context)) = (primary, context.get()) {
        primary.store(context as usize, Relaxed);
    }
    Ok(())
}

/// A context was destroyed, or with no context given the device's primary one reset: what it held is given back.
///
/// Physical memory and what graphs have belong to the process and stay (measured: also over a reset). What pools gave
/// goes with a primary context, and stays when a created one ends (measured too).
pub fn context_gone(guest: &Guest, context: CUcontext, device: CUdevice) {
    let gone = match context as usize {
        0 => guest
            .memory
            .primary(device)
            .map_or(0, |primary| primary.load(Relaxed)),
        context => context,
    };
    guest.memory.graphs.context_gone(device);
    guest.memory.remove_context(gone);
    let mut all = vec![gone as u64];
    let is_primary = context.is_null();
    if is_primary {
        let greens = guest.memory.take_greens(device);
        for green in &greens {
            guest.memory.remove_context(*green as usize);
        }
        all.extend(greens);
    }
    all.retain(|context| *context != 0);
    if !all.is_empty() {
        guest.memory.live.drain(
            |record| {
                all.contains(&record::context(record))
                    && (is_primary || !record::is_of_a_pool(record))
            },
            |key, record| {
                if record::is(&record, Kind::Swappable) {
                    // The driver takes away only what it made in the context itself.
                    let _ = backing::abandon(guest, key);
                }
                account::settle(guest, &record);
            },
        );
    }
}

/// A stream is about to be destroyed.
pub fn stream_gone(guest: &Guest, stream: usize) {
    guest.memory.graphs.stream_gone(stream);
}
