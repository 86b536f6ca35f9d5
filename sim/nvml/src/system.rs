//! What the driver says of itself.

use std::ffi::c_char;

use crate::answer::{NvmlReturn, text};
use crate::c::{Out, OutText};
use crate::session;

/// What the simulated driver answers to `cuDriverGetVersion`.
const CUDA_VERSION: i32 = 13000;

pub(crate) fn driver_version(version: OutText, room: u32) -> NvmlReturn {
    version.set(room, session::view()?.driver_version())
}

/// NVML's own version is the CUDA major version and the driver's.
pub(crate) fn nvml_version(version: OutText, room: u32) -> NvmlReturn {
    let view = session::view()?;
    let major = CUDA_VERSION / 1000;
    version.set(room, &format!("{major}.{}", view.driver_version()))
}

pub(crate) fn cuda_version(version: Out<i32>) -> NvmlReturn {
    version.set(CUDA_VERSION)
}

/// `nvmlErrorString`, which answers with the text itself.
pub(crate) fn error_string(code: u32) -> *const c_char {
    text(code).as_ptr()
}
