//! Queries of NVML for a device and for the driver's version. NVML returns while the driver blocks all other calls.
//!
//! It is loaded at the first query, which is made only in a process that is to be evicted.
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

/// Returns true if NVML is loaded and initialised.
fn is_there() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| {
        let flags = libc::RTLD_NOW | libc::RTLD_NODELETE;
        let handle = libc_dl::dlopen(c"libnvidia-ml.so.1", flags);
        if handle.is_null() {
            libc_dl::clear_error();
            return false;
        }
        // SAFETY: the function has no arguments.
        unsafe { call::nvmlInit_v2() }.is_ok()
    })
}

/// Returns the driver's branch: the number before the first point of its version.
pub fn driver_branch() -> Option<u32> {
    if !is_there() {
        return None;
    }
    let mut text = [0; 96];
    // SAFETY: the driver writes to a local buffer of the stated length.
    unsafe { call::nvmlSystemGetDriverVersion(text.as_mut_ptr(), text.len() as u32 - 1) }.ok()?;
    // SAFETY: the last byte is zero, whatever was written before it.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().ok()?;
    text.split('.').next()?.parse().ok()
}

/// A device as known to NVML.
pub struct Card(nvmlDevice_t);

impl Card {
    /// Returns the device with this UUID.
    pub fn of(uuid: [u8; 16]) -> Option<Self> {
        if !is_there() {
            return None;
        }
        let name = CString::new(format_uuid(uuid, false)).ok()?;
        let mut device = null_mut();
        // SAFETY: the name is a C string, and the result a local variable.
        let found: CUresult =
            unsafe { call::nvmlDeviceGetHandleByUUID(name.as_ptr(), Out::to(&mut device)) };
        found.ok().map(|()| Self(device))
    }

    /// Returns the bytes that are in use by no process.
    pub fn free_bytes(&self) -> Option<u64> {
        let mut memory = nvmlMemory_t {
            total: 0,
            free: 0,
            used: 0,
        };
        // SAFETY: NVML has returned the handle, and the result is a local variable.
        unsafe { call::nvmlDeviceGetMemoryInfo(self.0, Out::to(&mut memory)) }.ok()?;
        Some(memory.free)
    }

    /// Returns the bytes of this process on the device. In a container NVML may not list it, because its process IDs
    /// differ.
    pub fn own_bytes(&self) -> Option<u64> {
        const UNKNOWN: u64 = u64::MAX;
        let mut processes = [nvmlProcessInfo_t {
            pid: 0,
            usedGpuMemory: 0,
            gpuInstanceId: 0,
            computeInstanceId: 0,
        }; 128];
        let mut count = processes.len() as u32;
        // SAFETY: NVML has returned the handle; the results are local, and the count is their number.
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
