//! Starting, versions, errors by name, looking functions up.

use std::ffi::{c_char, c_void};

use gpushare_abi::errors::{self, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUresult};
use gpushare_abi::types::{CU_GET_PROC_ADDRESS_SUCCESS, CUuuid};

use crate::c::{In, Out, Text};
use crate::driver;
use crate::exports::{self, Found};
use crate::faces::faces;

fn proc_address(
    name: Text,
    out: Out<*const c_void>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> CUresult {
    out.check()?;
    if flags > 2 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (address, why) = match exports::find(&name.get()?, version, flags == 2) {
        Found::At(address) => (address, CU_GET_PROC_ADDRESS_SUCCESS),
        Found::Not(why) => (std::ptr::null(), why),
    };
    out.set(address.cast())?;
    status.set_if_wanted(why);
    if address.is_null() {
        Err(CUDA_ERROR_NOT_FOUND)
    } else {
        Ok(())
    }
}

faces! {
    "cuInit" 2000 cuInit (flags: u32) {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        driver::init()
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
    "cuGetProcAddress" 11030 cuGetProcAddress (name: Text, out: Out<*const c_void>, version: i32, flags: u64) {
        proc_address(name, out, version, flags, Out(std::ptr::null_mut()))
    }
    "cuGetProcAddress" 12000 cuGetProcAddress_v2 (name: Text, out: Out<*const c_void>, version: i32, flags: u64, status: Out<u32>) {
        proc_address(name, out, version, flags, status)
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
