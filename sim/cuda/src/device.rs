//! The simulated devices and their properties.

use std::ffi::c_char;

use gpushare_abi::errors::{
    CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUerror,
    CUresult,
};
use gpushare_abi::types::{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUdevice, CUdevprop, CUuuid};
use gpushare_sim::Device;

use crate::c::{Out, Text, put_text};
use crate::context::current;
use crate::driver::driver;
use crate::faces::faces;

/// The handle types that pools can be shared by: `CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES`.
pub const POOL_HANDLE_TYPES: u32 = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// The attributes that are 1; 125 is for events of other processes, 142 and 144 are for pools of the host.
const ONES: &[u32] = &[
    15, 19, 31, 41, 44, 78, 79, 80, 83, 89, 90, 91, 92, 93, 94, 95, 98, 99, 102, 103, 113, 114,
    115, 120, 122, 123, 125, 126, 142, 144,
];

/// Returns an attribute by its number in the driver's header. Most are 0.
fn attribute(device: &Device, attribute: u32) -> Result<i32, CUerror> {
    // A client of MPS sees its share.
    if let (16, Some(client)) = (attribute, driver()?.member.mps()) {
        return Ok(client.multiprocessors(device.multiprocessors) as i32);
    }
    let multiprocessors = device.multiprocessors as i32;
    Ok(match attribute {
        _ if ONES.contains(&attribute) => 1,
        1..=3 | 111 => 1024,
        4 => 64,
        5 | 11 => i32::MAX,
        6 | 7 => 65535,
        8 => 48 << 10,
        9 => 64 << 10,
        10 | 51 | 106 => 32,
        12 | 23 | 55 | 56 | 82 => 65536,
        13 => 1_980_000,
        14 | 30 => 512,
        16 => multiprocessors,
        21 | 22 | 57 | 70 => 131_072,
        24..=26 | 58..=60 => 16384,
        27 | 28 | 42 | 45 | 46 | 52 | 54 | 61 | 62 | 64 | 66 | 73 | 74 | 77 => 32768,
        29 | 39 | 43 | 63 => 2048,
        33 => device.pci_bus() as i32,
        36 => 2_619_000,
        37 => 5120,
        38 => 50 << 20,
        40 => 3,
        47..=49 => 8192,
        53 | 65 | 67 | 68 => 2046,
        69 => 268_435_456,
        71 => 65000,
        72 => 2_097_120,
        75 => device.compute.major as i32,
        76 => device.compute.minor as i32,
        81 => 233_472,
        87 => 2,
        97 => 227 << 10,
        108 => 128 << 20,
        109 => 32 << 20,
        119 => POOL_HANDLE_TYPES as i32,
        // Multicast objects.
        132 => i32::from(driver()?.devices.len() > 1),
        133 => i32::from(driver()?.member.mps().is_some()),
        1..=148 => 0,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

fn uuid(out: Out<CUuuid>, bytes: [u8; 16]) -> CUresult {
    out.set(CUuuid { bytes })
}

/// Returns a bus ID such as `0000:10:00.0`.
fn bus_id(device: &Device) -> String {
    format!("0000:{:02X}:00.0", device.pci_bus())
}

faces! {
    "cuDeviceGet" 2000 cuDeviceGet (out: Out<CUdevice>, ordinal: i32) {
        driver()?.device(ordinal)?;
        out.set(ordinal)
    }
    "cuDeviceGetCount" 2000 cuDeviceGetCount (out: Out<i32>) { out.set(driver()?.devices.len() as i32) }
    "cuDeviceGetName" 2000 cuDeviceGetName (out: Out<c_char>, length: i32, device: CUdevice) {
        put_text(out, length, &driver()?.device(device)?.name)
    }
    "cuDeviceGetUuid" 9020 cuDeviceGetUuid (out: Out<CUuuid>, device: CUdevice) {
        uuid(out, driver()?.device(device)?.gpu_uuid)
    }
    "cuDeviceGetUuid" 11040 cuDeviceGetUuid_v2 (out: Out<CUuuid>, device: CUdevice) {
        uuid(out, driver()?.device(device)?.uuid)
    }
    "cuDeviceGetLuid" 10000 cuDeviceGetLuid (luid: Out<c_char>, mask: Out<u32>, device: CUdevice) {
        let _ = (luid, mask);
        driver()?.device(device)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
    "cuDeviceTotalMem" 3020 cuDeviceTotalMem_v2 (out: Out<usize>, device: CUdevice) {
        out.set(driver()?.device(device)?.memory as usize)
    }
    "cuDeviceGetTexture1DLinearMaxWidth" 11010 cuDeviceGetTexture1DLinearMaxWidth (out: Out<usize>, format: u32, channels: u32, device: CUdevice) {
        driver()?.device(device)?;
        gpushare_abi::types::channel_bytes(format).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if !matches!(channels, 1 | 2 | 4) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(1 << 28)
    }
    "cuDeviceGetAttribute" 2000 cuDeviceGetAttribute (out: Out<i32>, which: u32, device: CUdevice) {
        let device = driver()?.device(device)?;
        out.check()?;
        out.set(attribute(device, which)?)
    }
    "cuDeviceGetProperties" 2000 cuDeviceGetProperties (out: Out<CUdevprop>, device: CUdevice) {
        let device = driver()?.device(device)?;
        let get = |which| attribute(device, which);
        out.set(CUdevprop {
            maxThreadsPerBlock: get(1)?,
            maxThreadsDim: [get(2)?, get(3)?, get(4)?],
            maxGridSize: [get(5)?, get(6)?, get(7)?],
            sharedMemPerBlock: get(8)?,
            totalConstantMemory: get(9)?,
            SIMDWidth: get(10)?,
            memPitch: get(11)?,
            regsPerBlock: get(12)?,
            clockRate: get(13)?,
            textureAlign: get(14)?,
        })
    }
    "cuDeviceComputeCapability" 2000 cuDeviceComputeCapability (major: Out<i32>, minor: Out<i32>, device: CUdevice) {
        let compute = driver()?.device(device)?.compute;
        major.set(compute.major as i32)?;
        minor.set(compute.minor as i32)
    }
    "cuDeviceGetPCIBusId" 4010 cuDeviceGetPCIBusId (out: Out<c_char>, length: i32, device: CUdevice) {
        put_text(out, length, &bus_id(driver()?.device(device)?))
    }
    "cuDeviceGetByPCIBusId" 4010 cuDeviceGetByPCIBusId (out: Out<CUdevice>, text: Text) {
        let driver = driver()?;
        let wanted = text.get()?.to_ascii_uppercase();
        let wanted = if wanted.matches(':').count() == 1 { format!("0000:{wanted}") } else { wanted };
        let wanted = wanted.trim_start_matches("0000").trim_end_matches(".0");
        let found = driver.devices.iter().position(|device| {
            bus_id(device).trim_start_matches("0000").trim_end_matches(".0") == wanted
        });
        out.set(found.ok_or(CUDA_ERROR_INVALID_DEVICE)? as i32)
    }
    "cuDeviceGetExecAffinitySupport" 11040 cuDeviceGetExecAffinitySupport (out: Out<i32>, kind: u32, device: CUdevice) {
        let _ = kind;
        driver()?.device(device)?;
        out.set(0)
    }
    "cuFlushGPUDirectRDMAWrites" 11030 cuFlushGPUDirectRDMAWrites (target: u32, scope: u32) {
        let _ = (target, scope);
        current().map(|_| ())
    }
    "cuDeviceGetNvSciSyncAttributes" 10020 cuDeviceGetNvSciSyncAttributes (list: u64, device: CUdevice, flags: i32) {
        let _ = (list, flags);
        driver()?.device(device)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }
}
