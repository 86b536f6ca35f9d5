//! Versions of the driver and of NVML.

use std::ffi::c_char;

use crate::answer::{ARGUMENT_VERSION_MISMATCH, INSUFFICIENT_SIZE, NvmlReturn, text};
use crate::c::{DriverBranch, Out, OutText, version_1};
use crate::session;

/// The version that `cuDriverGetVersion` of the simulated driver returns.
const CUDA_VERSION: i32 = 13000;

pub(crate) fn driver_version(version: OutText, room: u32) -> NvmlReturn {
    version.set(room, session::view()?.driver_version())
}

/// Returns the driver's release branch: `r580_00` for 580.159.04.
pub(crate) fn driver_branch(branch: Out<DriverBranch>, room: u32) -> NvmlReturn {
    let view = session::view()?;
    let mut info = branch.get()?;
    if info.version != version_1::<DriverBranch>() {
        return Err(ARGUMENT_VERSION_MISMATCH);
    }
    let major = view.driver_version().split('.').next().unwrap_or_default();
    let name = format!("r{major}_00");
    if name.len() >= info.branch.len().min(room as usize) {
        return Err(INSUFFICIENT_SIZE);
    }
    info.branch = [0; 80];
    info.branch[..name.len()].copy_from_slice(name.as_bytes());
    branch.set(info)
}

/// Returns NVML's version: the CUDA major version, then the driver's version.
pub(crate) fn nvml_version(version: OutText, room: u32) -> NvmlReturn {
    let view = session::view()?;
    let major = CUDA_VERSION / 1000;
    version.set(room, &format!("{major}.{}", view.driver_version()))
}

pub(crate) fn cuda_version(version: Out<i32>) -> NvmlReturn {
    version.set(CUDA_VERSION)
}

/// `nvmlErrorString`, which returns the text itself.
pub(crate) fn error_string(code: u32) -> *const c_char {
    text(code).as_ptr()
}
