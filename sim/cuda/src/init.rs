//! Starting, versions, errors by name, looking functions up.

use std::ffi::{c_char, c_void};

use gpushare_abi::errors::{
    self, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUerror, CUresult,
};
use gpushare_abi::types::{
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, CU_GET_PROC_ADDRESS_SUCCESS, CUuuid,
};

use crate::c::{In, Out, Text};
use crate::driver;
use crate::exports::{self, Found};
use crate::faces::faces;

/// Looks a function up; `NULL` and a status tell that there is none.
fn proc_address(
    name: Text,
    out: Out<*const c_void>,
    version: i32,
    flags: u64,
) -> Result<u32, CUerror> {
    out.check()?;
    let name = name.get()?;
    out.set(std::ptr::null())?;
    if flags > 2 || version > driver::VERSION {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match exports::find(
        &name,
        version,
        flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    ) {
        Found::At(address) => {
            out.set(address.cast())?;
            Ok(CU_GET_PROC_ADDRESS_SUCCESS)
        }
        Found::Not(status) => Ok(status),
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
        match proc_address(name, out, version, flags)? {
            CU_GET_PROC_ADDRESS_SUCCESS => Ok(()),
            _ => Err(CUDA_ERROR_NOT_FOUND),
        }
    }
    "cuGetProcAddress" 12000 cuGetProcAddress_v2 (name: Text, out: Out<*const c_void>, version: i32, flags: u64, status: Out<u32>) {
        // This form says that there is none by the status alone.
        status.set_if_wanted(proc_address(name, out, version, flags)?);
        Ok(())
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
