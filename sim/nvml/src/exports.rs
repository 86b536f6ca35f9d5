//! The exported C functions, one row each: the NVML name, the arguments, and the implementation.
//!
//! Other names that clients look up return `NOT_SUPPORTED` ([`not_supported`](crate::not_supported)). A name in neither list is
//! missing from the library, as in an older driver.

#![allow(unsafe_code, reason = "exported C names")]
#![allow(non_snake_case, reason = "NVML's own names")]

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::answer::{NvmlReturn, UNKNOWN};
use crate::c::{
    DriverBranch, EventData, Handle, InText, Memory, MemoryV2, Out, OutText, PciInfo, PciInfoExt,
    ProcessInfo, ProcessInfoV1, ProcessSample, Temperature, Utilization,
};
use crate::{board, events, memory, mig, processes, sensors, session, system};

macro_rules! exports {
    ($(fn $name:ident($($argument:ident: $ty:ty),*) = $body:path;)*) => {$(
        // SAFETY: the name is NVML's and only this library defines it.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $ty),*) -> NvmlReturn {
            catch_unwind(AssertUnwindSafe(|| $body($($argument),*))).unwrap_or(Err(UNKNOWN))
        }
    )*};
}

exports! {
    fn nvmlInit() = session::init;
    fn nvmlInit_v2() = session::init;
    fn nvmlInitWithFlags(flags: u32) = session::init_with_flags;
    fn nvmlShutdown() = session::shutdown;

    fn nvmlSystemGetDriverVersion(version: OutText, room: u32) = system::driver_version;
    fn nvmlSystemGetNVMLVersion(version: OutText, room: u32) = system::nvml_version;
    fn nvmlSystemGetCudaDriverVersion(version: Out<i32>) = system::cuda_version;
    fn nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) = system::cuda_version;
    fn nvmlSystemGetDriverBranch(branch: Out<DriverBranch>, room: u32) = system::driver_branch;
    fn nvmlSystemGetProcessName(pid: u32, name: OutText, room: u32) = processes::name;

    fn nvmlDeviceGetCount(count: Out<u32>) = board::count;
    fn nvmlDeviceGetCount_v2(count: Out<u32>) = board::count;
    fn nvmlDeviceGetHandleByIndex(index: u32, device: Out<Handle>) = board::by_index;
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<Handle>) = board::by_index;
    fn nvmlDeviceGetHandleByUUID(uuid: InText, device: Out<Handle>) = board::by_uuid;
    fn nvmlDeviceGetHandleByPciBusId(id: InText, device: Out<Handle>) = board::by_pci_bus_id;
    fn nvmlDeviceGetHandleByPciBusId_v2(id: InText, device: Out<Handle>) = board::by_pci_bus_id;
    fn nvmlDeviceGetName(device: Handle, name: OutText, room: u32) = board::name;
    fn nvmlDeviceGetUUID(device: Handle, uuid: OutText, room: u32) = board::uuid;
    fn nvmlDeviceGetIndex(device: Handle, index: Out<u32>) = board::index;
    fn nvmlDeviceGetMinorNumber(device: Handle, minor: Out<u32>) = board::minor_number;
    fn nvmlDeviceGetPciInfo(device: Handle, pci: Out<PciInfo>) = board::pci_info;
    fn nvmlDeviceGetPciInfo_v2(device: Handle, pci: Out<PciInfo>) = board::pci_info;
    fn nvmlDeviceGetPciInfo_v3(device: Handle, pci: Out<PciInfo>) = board::pci_info;
    fn nvmlDeviceGetPciInfoExt(device: Handle, pci: Out<PciInfoExt>) = board::pci_info_ext;
    fn nvmlDeviceGetBrand(device: Handle, brand: Out<u32>) = board::brand;
    fn nvmlDeviceGetVirtualizationMode(device: Handle, mode: Out<u32>) = board::virtualization;
    fn nvmlDeviceGetDisplayMode(device: Handle, on: Out<u32>) = board::display;
    fn nvmlDeviceGetDisplayActive(device: Handle, on: Out<u32>) = board::display;
    fn nvmlDeviceGetArchitecture(device: Handle, architecture: Out<u32>) = board::architecture;
    fn nvmlDeviceGetP2PStatus(device: Handle, peer: Handle, capability: u32, status: Out<u32>) = board::p2p_status;
    fn nvmlDeviceGetCpuAffinity(device: Handle, words: u32, set: Out<u64>) = board::cpu_affinity;
    fn nvmlDeviceGetCpuAffinityWithinScope(device: Handle, words: u32, set: Out<u64>, scope: u32) = board::cpu_affinity_within;
    fn nvmlDeviceGetMemoryAffinity(device: Handle, words: u32, set: Out<u64>, scope: u32) = board::memory_affinity;
    fn nvmlDeviceGetCudaComputeCapability(device: Handle, major: Out<i32>, minor: Out<i32>) = board::compute_capability;

    fn nvmlDeviceGetMigMode(device: Handle, current: Out<u32>, pending: Out<u32>) = mig::mode;
    fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: Out<u32>) = mig::max_count;
    fn nvmlDeviceGetMigDeviceHandleByIndex(device: Handle, index: u32, instance: Out<Handle>) = mig::by_index;
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance: Handle, device: Out<Handle>) = mig::gpu_of;
    fn nvmlDeviceIsMigDeviceHandle(device: Handle, is_instance: Out<u32>) = mig::is_instance;
    fn nvmlDeviceGetGpuInstanceId(instance: Handle, id: Out<u32>) = mig::gpu_instance_id;
    fn nvmlDeviceGetComputeInstanceId(instance: Handle, id: Out<u32>) = mig::compute_instance_id;

    fn nvmlDeviceGetBAR1MemoryInfo(device: Handle, memory: Out<Memory>) = memory::bar1;
    fn nvmlDeviceGetMemoryInfo(device: Handle, memory: Out<Memory>) = memory::info;
    fn nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: Out<MemoryV2>) = memory::info_v2;

    fn nvmlDeviceGetComputeRunningProcesses(device: Handle, count: Out<u32>, infos: Out<ProcessInfoV1>) = processes::compute_v1;
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) = processes::compute;
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) = processes::compute;
    fn nvmlDeviceGetGraphicsRunningProcesses(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) = processes::none;
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) = processes::none;
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) = processes::none;
    fn nvmlDeviceGetMPSComputeRunningProcesses(device: Handle, count: Out<u32>, infos: Out<ProcessInfoV1>) = processes::mps_v1;
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) = processes::mps;
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Handle, count: Out<u32>, infos: Out<ProcessInfo>) = processes::mps;
    fn nvmlDeviceGetProcessUtilization(device: Handle, samples: Out<ProcessSample>, count: Out<u32>, last_seen_us: u64) = processes::utilization;

    fn nvmlDeviceGetUtilizationRates(device: Handle, rates: Out<Utilization>) = sensors::utilization;
    fn nvmlDeviceGetEncoderUtilization(device: Handle, percent: Out<u32>, period_us: Out<u32>) = sensors::codec;
    fn nvmlDeviceGetDecoderUtilization(device: Handle, percent: Out<u32>, period_us: Out<u32>) = sensors::codec;
    fn nvmlDeviceGetTemperature(device: Handle, sensor: u32, celsius: Out<u32>) = sensors::temperature;
    fn nvmlDeviceGetTemperatureV(device: Handle, temperature: Out<Temperature>) = sensors::temperature_v;
    fn nvmlDeviceGetPowerUsage(device: Handle, milliwatts: Out<u32>) = sensors::power;
    fn nvmlDeviceGetEnforcedPowerLimit(device: Handle, milliwatts: Out<u32>) = sensors::power_limit;
    fn nvmlDeviceGetPowerManagementLimit(device: Handle, milliwatts: Out<u32>) = sensors::power_limit;
    fn nvmlDeviceGetClockInfo(device: Handle, domain: u32, megahertz: Out<u32>) = sensors::clock;
    fn nvmlDeviceGetMaxClockInfo(device: Handle, domain: u32, megahertz: Out<u32>) = sensors::max_clock;
    fn nvmlDeviceGetFanSpeed(device: Handle, percent: Out<u32>) = sensors::fan;
    fn nvmlDeviceGetFanSpeed_v2(device: Handle, fan: u32, percent: Out<u32>) = sensors::fan_of;
    fn nvmlDeviceGetNumFans(device: Handle, count: Out<u32>) = sensors::fans;
    fn nvmlDeviceGetCurrentClocksEventReasons(device: Handle, reasons: Out<u64>) = sensors::clocks_event_reasons;
    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: Handle, reasons: Out<u64>) = sensors::clocks_event_reasons;
    fn nvmlDeviceGetPerformanceState(device: Handle, state: Out<u32>) = sensors::performance_state;
    fn nvmlDeviceGetSupportedPerformanceStates(device: Handle, states: Out<u32>, bytes: u32) = sensors::performance_states;
    fn nvmlDeviceGetMinMaxClockOfPState(device: Handle, domain: u32, state: u32, least: Out<u32>, most: Out<u32>) = sensors::clocks_of_state;
    fn nvmlDeviceGetCurrPcieLinkGeneration(device: Handle, generation: Out<u32>) = sensors::pcie_generation;
    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(device: Handle, generation: Out<u32>) = sensors::max_pcie_generation;
    fn nvmlDeviceGetCurrPcieLinkWidth(device: Handle, lanes: Out<u32>) = sensors::pcie_width;
    fn nvmlDeviceGetMaxPcieLinkGeneration(device: Handle, generation: Out<u32>) = sensors::max_pcie_generation;
    fn nvmlDeviceGetMaxPcieLinkWidth(device: Handle, lanes: Out<u32>) = sensors::max_pcie_width;
    fn nvmlDeviceGetPcieThroughput(device: Handle, counter: u32, kilobytes: Out<u32>) = sensors::pcie_throughput;
    fn nvmlDeviceGetSupportedEventTypes(device: Handle, types: Out<u64>) = events::types;
    fn nvmlDeviceRegisterEvents(device: Handle, types: u64, set: usize) = events::register;
    fn nvmlEventSetCreate(set: Out<usize>) = events::create;
    fn nvmlEventSetWait(set: usize, event: Out<EventData>, timeout_ms: u32) = events::wait;
    fn nvmlEventSetWait_v2(set: usize, event: Out<EventData>, timeout_ms: u32) = events::wait;
    fn nvmlEventSetFree(set: usize) = events::free;
    fn nvmlDeviceGetPersistenceMode(device: Handle, on: Out<u32>) = sensors::persistence;
    fn nvmlDeviceGetComputeMode(device: Handle, mode: Out<u32>) = sensors::compute_mode;
}

// SAFETY: the name is NVML's and only this library defines it.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    system::error_string(code)
}
