//! Peers: devices that can access each other's memory, and contexts that have enabled it.
//!
//! All whole GPUs of a world are joined by links; MIG instances are not. Access goes one way, from the context that
//! enabled it. A kernel computes nothing, so missing access only stops copies of a pool's memory
//! (`pool::is_reached`).

use std::{collections::BTreeSet, sync::Mutex};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE,
        CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
        CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, CUerror, CUresult,
    },
    types::{CUcontext, CUdevice},
};

use crate::{
    c::Out,
    context::{by_handle, current},
    driver::driver,
    faces::faces,
    handles::lock,
};

/// Pairs of a context and a context whose memory it can access. A handle is never reused, so an entry of a destroyed
/// context is harmless.
static ENABLED: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// Returns true if a device can access another one's memory; a device can always access its own.
pub fn can_reach(from: CUdevice, to: CUdevice) -> Result<bool, CUerror> {
    let driver = driver()?;
    let (one, other) = (driver.device(from)?, driver.device(to)?);
    Ok(from == to || (one.mig.is_none() && other.mig.is_none()))
}

fn are_peers(one: CUdevice, other: CUdevice) -> Result<bool, CUerror> {
    Ok(can_reach(one, other)? && one != other)
}

/// Returns a `CUdevice_P2PAttribute`: 1 rank, 2 access, 3 atomics, 4 arrays, 5 only some atomics.
fn attribute(which: u32, joined: bool) -> Result<i32, CUerror> {
    match which {
        1 | 5 => Ok(0),
        2..=4 => Ok(joined.into()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

faces! {
    "cuDeviceCanAccessPeer" 4000 cuDeviceCanAccessPeer (out: Out<i32>, one: CUdevice, other: CUdevice) {
        let joined = are_peers(one, other)?;
        out.set(joined.into())
    }
    "cuDeviceGetP2PAttribute" 8000 cuDeviceGetP2PAttribute (out: Out<i32>, which: u32, one: CUdevice, other: CUdevice) {
        let joined = are_peers(one, other)?;
        if one == other {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        out.set(attribute(which, joined)?)
    }
    "cuCtxEnablePeerAccess" 4000 cuCtxEnablePeerAccess (peer: CUcontext, flags: u32) {
        let (own, peer) = (current()?, by_handle(peer)?);
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !are_peers(own.device, peer.device)? {
            return Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        if lock(&ENABLED).insert((own.handle, peer.handle)) {
            Ok(())
        } else {
            Err(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        }
    }
    "cuCtxDisablePeerAccess" 4000 cuCtxDisablePeerAccess (peer: CUcontext) {
        let (own, peer) = (current()?.handle, by_handle(peer)?.handle);
        if lock(&ENABLED).remove(&(own, peer)) {
            Ok(())
        } else {
            Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
        }
    }
}
