//! A device's memory, by the byte: taken from the world all processes share, and given back to it.
//!
//! Some memory is kept although nothing uses it (pools do that). Who keeps memory registers with [`reclaim_by`], and
//! a request that does not fit is tried once more after they have given back what they can.

use std::sync::Mutex;

use gpushare_abi::errors::{CUDA_ERROR_OUT_OF_MEMORY, CUerror, CUresult};

use crate::{
    driver::{Driver, driver},
    handles::lock,
};

/// Gives back what is kept of a device's memory, by the device's ordinal.
type Reclaim = fn(i32);

static RECLAIMERS: Mutex<Vec<Reclaim>> = Mutex::new(Vec::new());

/// Registers one that keeps memory; once is enough, and twice changes nothing.
pub fn reclaim_by(reclaim: Reclaim) {
    let mut all = lock(&RECLAIMERS);
    if !all
        .iter()
        .any(|known| std::ptr::fn_addr_eq(*known, reclaim))
    {
        all.push(reclaim);
    }
}

/// Takes memory of a device. What others keep unused is given back first if it is needed.
pub fn take(ordinal: i32, bytes: u64) -> CUresult {
    take_free(ordinal, bytes).or_else(|error| {
        if error != CUDA_ERROR_OUT_OF_MEMORY {
            return Err(error);
        }
        reclaim(ordinal);
        take_free(ordinal, bytes)
    })
}

/// Takes memory of a device, if so much is free right now.
pub fn take_free(ordinal: i32, bytes: u64) -> CUresult {
    let (driver, index) = place(ordinal)?;
    let taken = driver.member.take_memory(index, bytes);
    taken.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)
}

/// Gives memory of a device back.
pub fn give(ordinal: i32, bytes: u64) {
    // Without a driver there is nothing that was taken.
    if let Ok((driver, index)) = place(ordinal) {
        driver.member.give_memory(index, bytes);
    }
}

/// Has all that is kept of a device's memory given back.
pub fn reclaim(ordinal: i32) {
    // They may take locks of their own: none is held meanwhile.
    let all = lock(&RECLAIMERS).clone();
    all.iter().for_each(|reclaim| reclaim(ordinal));
}

fn place(ordinal: i32) -> Result<(&'static Driver, usize), CUerror> {
    let driver = driver()?;
    Ok((driver, driver.device(ordinal)?.index))
}
