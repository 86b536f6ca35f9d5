//! The rows of NVML: its reports of a device's memory inside a process.
//!
//! Their version is 0, because `cuGetProcAddress` never returns them. Their results are NVML's codes; success is zero as in the
//! driver.

/// Adds the NVML rows and passes the whole table to `$with!`.
#[doc(hidden)]
#[macro_export]
macro_rules! nvml_rows {
    ($with:ident hooked { $($hooked:tt)* } used { $($used:tt)* }) => {
        $with! { hooked { $($hooked)*
            // ---- NVML ----
            /// reports the quota as the device's memory, unless GPUSHARE_NVML_VIEW=0
            "nvmlDeviceGetMemoryInfo" 0 call memory::nvml::memory_info fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: Out<nvmlMemory_t>);
            /// reports the quota as the device's memory, unless GPUSHARE_NVML_VIEW=0
            "nvmlDeviceGetMemoryInfo_v2" 0 call memory::nvml::memory_info_v2 fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: Out<nvmlMemory_v2_t>);
        } used { $($used)*
            fn nvmlInit_v2();
            fn nvmlSystemGetDriverVersion(version: *mut c_char, len: u32);
            fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: Out<nvmlDevice_t>);
            fn nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, count: Out<u32>, processes: *mut nvmlProcessInfo_t);
            fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, len: u32);
        } }
    };
}
