//! Starting, versions, errors by name.

use std::ffi::{c_char, c_void};

use gpushare_abi::errors::{self, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUresult};
use gpushare_abi::types::CUuuid;

use crate::c::{In, Out, Text};
use crate::channels;
use crate::driver;
use crate::faces::faces;

faces! {
    "cuInit" 2000 cuInit (flags: u32) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        driver::init()?;
        channels::open();
        Ok(())
    }
    "cuDriverGetVersion" 2020 cuDriverGetVersion (out: Out<i32>) { out.set(driver::VERSION) }
    "cuGetErrorName" 6000 cuGetErrorName (code: u32, out: Out<*const c_char>) {
        let name = errors::name_of(code);
        out.set(name.map_or(std::ptr::null(), |name| name.as_ptr()))?;
        name.map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
    "cuGetErrorString" 6000 cuGetErrorString (code: u32, out: Out<*const c_char>) {
        let text = errors::description_of(code);
        out.set(text.map_or(std::ptr::null(), |text| text.as_ptr()))?;
        text.map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
    "cuGetExportTable" 3000 cuGetExportTable (out: Out<*const c_void>, id: In<CUuuid>) {
        out.check()?;
        id.get()?;
        // The private tables are NVIDIA's; the simulator has none and does not pretend to.
        out.set(std::ptr::null())?;
        Err(CUDA_ERROR_NOT_FOUND)
    }
    "cuProfilerInitialize" 4000 cuProfilerInitialize (config: Text, output: Text, mode: u32) {
        let _ = (config, output, mode);
        Err(errors::CUDA_ERROR_NOT_SUPPORTED)
    }
    "cuProfilerStart" 4000 cuProfilerStart () { crate::context::current().map(|_| ()) }
    "cuProfilerStop" 4000 cuProfilerStop () { crate::context::current().map(|_| ()) }
}
