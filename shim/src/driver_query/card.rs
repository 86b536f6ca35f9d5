//! What NVML says of a card and of the driver: it answers while the driver answers nothing else.
//!
//! It is loaded at the first question, which comes only in a process that is to be evicted.
#![allow(unsafe_code, reason = "loads and asks NVML")]

use std::{
    ffi::{CStr, CString},
    ptr::null_mut,
    sync::OnceLock,
};

use gpushare_abi::{
    Out,
    errors::CUresult,
    types::{nvmlDevice_t, nvmlMemory_t, nvmlProcessInfo_t},
};
use shm_layout::format_uuid;

use crate::{driver::call, sys::libc_dl};

/// Whether NVML is there, initialised.
fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| {
        let flags = libc::RTLD_NOW | libc::RTLD_NODELETE;
        let handle = libc_dl::dlopen(c"libnvidia-ml.so.1", flags);
        if handle.is_null() {
            libc_dl::clear_error();
            return false;
        }
        // SAFETY: takes nothing.
        unsafe { call::nvmlInit_v2() }.is_ok()
    })
}

/// The driver's version: the number before the first point.
pub fn driver_branch() -> Option<u32> {
    if !is_there() {
        return None;
    }
    let mut text = [0; 96];
    // SAFETY: the place is ours and as long as we say.
    unsafe { call::nvmlSystemGetDriverVersion(text.as_mut_ptr(), text.len() as u32 - 1) }.ok()?;
    // SAFETY: the last byte is zero, whatever was written before it.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok()?;
    text.split('.').next()?.parse().ok()
}

/// A card.
pub struct Card(nvmlDevice_t);

impl Card {
    /// The one with this UUID.
    pub fn of(uuid: [u8; 16]) -> Option<Self> {
        if !is_there() {
            return None;
        }
        let name = CString::new(format_uuid(uuid, false)).ok()?;
        let mut device = null_mut();
        // SAFETY: a C string, and a place of ours.
        let found: CUresult =
            unsafe { call::nvmlDeviceGetHandleByUUID(name.as_ptr(), Out::to(&mut device)) };
        found.ok().map(|()| Self(device))
    }

    /// Bytes that no process has.
    pub fn free_bytes(&self) -> Option<u64> {
        let mut memory = nvmlMemory_t {
            total: 0,
            free: 0,
            used: 0,
        };
        // SAFETY: a handle that NVML gave, and a place of ours.
        unsafe { call::nvmlDeviceGetMemoryInfo(self.0, Out::to(&mut memory)) }.ok()?;
        Some(memory.free)
    }

    /// Bytes that this process has there, as far as NVML names it: in a container it knows other numbers of processes.
    pub fn own_bytes(&self) -> Option<u64> {
        const UNKNOWN: u64 = u64::MAX;
        let mut processes = [nvmlProcessInfo_t {
            pid: 0,
            usedGpuMemory: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        }; 128];
        let mut count = processes.len() as u32;
        // SAFETY: a handle that NVML gave; the places are ours, as many as we say.
        unsafe {
            call::nvmlDeviceGetComputeRunningProcesses_v3(
                self.0,
                Out::to(&mut count),
                processes.as_mut_ptr(),
            )
        }
        .ok()?;
        let mut known = processes.iter().take(count as usize);
        let own = known.find(|process| process.pid == std::process::id())?;
        Some(own.usedGpuMemory).filter(|bytes| *bytes != UNKNOWN)
    }
}
