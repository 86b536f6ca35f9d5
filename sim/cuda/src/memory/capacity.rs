//! The capacity of a device's memory in bytes, taken from the world that all processes share.
//!
//! Some memory is kept although nothing uses it, for example by pools. A part of the simulator that keeps memory
//! registers a function with [`reclaim_by`]. A request that does not fit is tried again after those functions have
//! released memory.

use std::sync::Mutex;

use gpushare_abi::errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult};

use crate::{
    driver::{Driver, driver},
    handles::lock,
};

/// A function that releases unused memory of the device with this ordinal.
type Reclaim = fn(i32);

static RECLAIMERS: Mutex<Vec<Reclaim>> = Mutex::new(Vec::new());

/// Registers such a function; a second registration changes nothing.
pub fn reclaim_by(reclaim: Reclaim) {
    let mut all = lock(&RECLAIMERS);
    if !all
        .iter()
        .any(|known| std::ptr::fn_addr_eq(*known, reclaim))
    {
        all.push(reclaim);
    }
}

/// Takes memory of a device. If it does not fit, unused memory is released first.
pub fn take(ordinal: i32, bytes: u64) -> CUresult {
    take_free(ordinal, bytes).or_else(|error| {
        if error != CUDA_ERROR_OUT_OF_MEMORY {
            return Err(error);
        }
        reclaim(ordinal);
        take_free(ordinal, bytes)
    })
}

/// Takes memory of a device, if as much is free now.
pub fn take_free(ordinal: i32, bytes: u64) -> CUresult {
    let (driver, index) = place(ordinal)?;
    let taken = driver.member.take_memory(index, bytes);
    taken.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)
}

/// Releases memory of a device.
pub fn give(ordinal: i32, bytes: u64) {
    // Without a driver there is nothing that was taken.
    if let Ok((driver, index)) = place(ordinal) {
        driver.member.give_memory(index, bytes);
    }
}

/// Has all that is kept of a device's memory given back.
pub fn reclaim(ordinal: i32) {
    // The functions may lock other data, so this lock is not held during their calls.
    let all = lock(&RECLAIMERS).clone();
    all.iter().for_each(|reclaim| reclaim(ordinal));
}

fn place(ordinal: i32) -> Result<(&'static Driver, usize), CUerror> {
    let driver = driver()?;
    Ok((driver, driver.device(ordinal)?.index))
}
