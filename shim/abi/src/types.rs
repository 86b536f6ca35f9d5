//! The C types of the CUDA driver API that this project passes on, reads or fills.
//!
//! Handles are pointers to opaque types, device addresses are `u64`, and enumerations are `u32` with named constants. Every
//! struct has the layout of the newest version of its function (`_v2` structs where there are two). Its size is asserted, so a
//! mistake fails the build.
#![allow(non_camel_case_types, reason = "these are the driver's own names")]

mod handles;
mod values;

use std::ffi::{c_char, c_int, c_uint, c_void};

pub use handles::*;
pub use values::*;

/// Re-exported so that signatures find it beside the types.
pub use crate::argument::In;

macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(missing_docs, non_snake_case, reason = "the fields are the driver's own, documented there")]
        pub struct $name {
            $(pub $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size, concat!("the layout of ", stringify!($name), " is wrong"));
    )*};
}

structs! {
    /// A UUID's bytes.
    CUuuid: 16 { bytes: [u8; 16], }

    /// The legacy device properties of `cuDeviceGetProperties`.
    CUdevprop: 56 {
        maxThreadsPerBlock: c_int, maxThreadsDim: [c_int; 3], maxGridSize: [c_int; 3], sharedMemPerBlock: c_int,
        totalConstantMemory: c_int, SIMDWidth: c_int, memPitch: c_int, regsPerBlock: c_int, clockRate: c_int,
        textureAlign: c_int,
    }

    /// A two-dimensional copy (`_v2`).
    CUDA_MEMCPY2D: 128 {
        srcXInBytes: usize, srcY: usize, srcMemoryType: CUmemorytype, srcHost: *const c_void, srcDevice: CUdeviceptr,
        srcArray: CUarray, srcPitch: usize,
        dstXInBytes: usize, dstY: usize, dstMemoryType: CUmemorytype, dstHost: *mut c_void, dstDevice: CUdeviceptr,
        dstArray: CUarray, dstPitch: usize,
        WidthInBytes: usize, Height: usize,
    }

    /// A three-dimensional copy (`_v2`).
    CUDA_MEMCPY3D: 200 {
        srcXInBytes: usize, srcY: usize, srcZ: usize, srcLOD: usize, srcMemoryType: CUmemorytype,
        srcHost: *const c_void, srcDevice: CUdeviceptr, srcArray: CUarray, reserved0: *mut c_void,
        srcPitch: usize, srcHeight: usize,
        dstXInBytes: usize, dstY: usize, dstZ: usize, dstLOD: usize, dstMemoryType: CUmemorytype,
        dstHost: *mut c_void, dstDevice: CUdeviceptr, dstArray: CUarray, reserved1: *mut c_void,
        dstPitch: usize, dstHeight: usize,
        WidthInBytes: usize, Height: usize, Depth: usize,
    }

    /// A three-dimensional copy between contexts.
    CUDA_MEMCPY3D_PEER: 200 {
        srcXInBytes: usize, srcY: usize, srcZ: usize, srcLOD: usize, srcMemoryType: CUmemorytype,
        srcHost: *const c_void, srcDevice: CUdeviceptr, srcArray: CUarray, srcContext: CUcontext,
        srcPitch: usize, srcHeight: usize,
        dstXInBytes: usize, dstY: usize, dstZ: usize, dstLOD: usize, dstMemoryType: CUmemorytype,
        dstHost: *mut c_void, dstDevice: CUdeviceptr, dstArray: CUarray, dstContext: CUcontext,
        dstPitch: usize, dstHeight: usize,
        WidthInBytes: usize, Height: usize, Depth: usize,
    }

    /// A two-dimensional copy from before CUDA 3.2.
    CUDA_MEMCPY2D_v1: 96 {
        srcXInBytes: c_uint, srcY: c_uint, srcMemoryType: CUmemorytype, srcHost: *const c_void, srcDevice: c_uint,
        srcArray: CUarray, srcPitch: c_uint,
        dstXInBytes: c_uint, dstY: c_uint, dstMemoryType: CUmemorytype, dstHost: *mut c_void, dstDevice: c_uint,
        dstArray: CUarray, dstPitch: c_uint,
        WidthInBytes: c_uint, Height: c_uint,
    }

    /// A three-dimensional copy from before CUDA 3.2.
    CUDA_MEMCPY3D_v1: 144 {
        srcXInBytes: c_uint, srcY: c_uint, srcZ: c_uint, srcLOD: c_uint, srcMemoryType: CUmemorytype,
        srcHost: *const c_void, srcDevice: c_uint, srcArray: CUarray, reserved0: *mut c_void,
        srcPitch: c_uint, srcHeight: c_uint,
        dstXInBytes: c_uint, dstY: c_uint, dstZ: c_uint, dstLOD: c_uint, dstMemoryType: CUmemorytype,
        dstHost: *mut c_void, dstDevice: c_uint, dstArray: CUarray, reserved1: *mut c_void,
        dstPitch: c_uint, dstHeight: c_uint,
        WidthInBytes: c_uint, Height: c_uint, Depth: c_uint,
    }

    /// One end of a three-dimensional copy of a batch. A pointer (`type_` 1) has its row length and layer height in
    /// `at[1..=2]`, an array (`type_` 2) an offset in `at[1..=3]`.
    CUmemcpy3DOperand: 40 { type_: c_uint, at: [u64; 4], }

    /// One copy of a three-dimensional batch.
    CUDA_MEMCPY3D_BATCH_OP: 112 {
        src: CUmemcpy3DOperand, dst: CUmemcpy3DOperand, width: usize, height: usize, depth: usize,
        srcAccessOrder: c_uint, flags: c_uint,
    }

    /// One end of a copy over a fabric: an address and its location, or a logical endpoint and an offset.
    CUfabricCpyOperand: 24 { type_: c_uint, at: [u64; 2], }

    /// One copy of a batch over a fabric.
    CUDA_FABRIC_COPY_BATCH_OP: 64 {
        src: CUfabricCpyOperand, dst: CUfabricCpyOperand, size: usize, flags: c_uint,
    }

    /// One decompression of a batch.
    CUmemDecompressParams: 64 {
        srcNumBytes: usize, dstNumBytes: usize, dstActBytes: *mut u32, src: *const c_void, dst: *mut c_void,
        algo: c_uint, padding: [u8; 20],
    }

    /// The order of reads of a batched copy's source, and the locations of both ends.
    CUmemcpyAttributes: 24 {
        srcAccessOrder: c_uint, srcLocHint: CUmemLocation, dstLocHint: CUmemLocation, flags: c_uint,
    }

    /// A one- or two-dimensional array from before CUDA 3.2.
    CUDA_ARRAY_DESCRIPTOR_v1: 16 { Width: c_uint, Height: c_uint, Format: c_uint, NumChannels: c_uint, }

    /// An array of up to three dimensions from before CUDA 3.2.
    CUDA_ARRAY3D_DESCRIPTOR_v1: 24 {
        Width: c_uint, Height: c_uint, Depth: c_uint, Format: c_uint, NumChannels: c_uint, Flags: c_uint,
    }

    /// A one- or two-dimensional array (`_v2`).
    CUDA_ARRAY_DESCRIPTOR: 24 { Width: usize, Height: usize, Format: c_uint, NumChannels: c_uint, }

    /// An array of up to three dimensions, layered or a cubemap (`_v2`).
    CUDA_ARRAY3D_DESCRIPTOR: 40 {
        Width: usize, Height: usize, Depth: usize, Format: c_uint, NumChannels: c_uint, Flags: c_uint,
    }

    /// Tile and mip-tail sizes of a sparse array.
    CUDA_ARRAY_SPARSE_PROPERTIES: 48 {
        tileWidth: c_uint, tileHeight: c_uint, tileDepth: c_uint, miptailFirstLevel: c_uint, miptailSize: u64,
        flags: c_uint, reserved: [c_uint; 4],
    }

    /// Size and alignment of a deferred-mapping array.
    CUDA_ARRAY_MEMORY_REQUIREMENTS: 32 { size: usize, alignment: usize, reserved: [c_uint; 4], }

    /// The resource of a texture or surface object.
    CUDA_RESOURCE_DESC: 144 { resType: c_uint, res: CUDA_RESOURCE, flags: c_uint, }

    /// The sampling of a texture object.
    CUDA_TEXTURE_DESC: 104 {
        addressMode: [c_uint; 3], filterMode: c_uint, flags: c_uint, maxAnisotropy: c_uint, mipmapFilterMode: c_uint,
        mipmapLevelBias: f32, minMipmapLevelClamp: f32, maxMipmapLevelClamp: f32, borderColor: [f32; 4],
        reserved: [c_int; 12],
    }

    /// A view of a texture's resource.
    CUDA_RESOURCE_VIEW_DESC: 112 {
        format: c_uint, width: usize, height: usize, depth: usize, firstMipmapLevel: c_uint, lastMipmapLevel: c_uint,
        firstLayer: c_uint, lastLayer: c_uint, reserved: [c_uint; 16],
    }

    /// One attribute of an extended launch.
    CUlaunchAttribute: 72 { id: c_uint, pad: [c_char; 4], value: [u64; 8], }

    /// An extended launch.
    CUlaunchConfig: 56 {
        gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint,
        sharedMemBytes: c_uint, hStream: CUstream, attrs: *mut CUlaunchAttribute, numAttrs: c_uint,
    }

    /// One device's part of a cooperative multi-device launch.
    CUDA_LAUNCH_PARAMS: 56 {
        function: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint,
        blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, kernelParams: *mut *mut c_void,
    }

    /// A location of memory.
    CUmemLocation: 8 { type_: CUmemLocationType, id: c_int, }

    /// The properties of physical memory from `cuMemCreate`.
    CUmemAllocationProp: 32 {
        type_: c_uint, requestedHandleTypes: c_uint, location: CUmemLocation, win32HandleMetaData: *mut c_void,
        compressionType: u8, gpuDirectRDMACapable: u8, usage: u16, reserved: [u8; 4],
    }

    /// The access of a location to mapped memory.
    CUmemAccessDesc: 12 { location: CUmemLocation, flags: c_uint, }

    /// The properties of a pool from `cuMemPoolCreate`.
    CUmemPoolProps: 88 {
        allocType: c_uint, handleTypes: c_uint, location: CUmemLocation, win32SecurityAttributes: *mut c_void,
        maxSize: usize, usage: u16, reserved: [u8; 54],
    }

    /// A pool allocation exported to another process.
    CUmemPoolPtrExportData: 64 { reserved: [u8; 64], }

    /// The properties of a multicast object from `cuMulticastCreate`.
    CUmulticastObjectProp: 32 { numDevices: c_uint, size: usize, handleTypes: u64, flags: u64, }

    /// Memory exported to another process.
    CUipcMemHandle: 64 { reserved: [u8; 64], }

    /// An event exported to another process.
    CUipcEventHandle: 64 { reserved: [u8; 64], }

    /// Memory of another API.
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC: 104 {
        type_: c_uint, handle: [u64; 2], size: u64, flags: c_uint, reserved: [c_uint; 16],
    }

    /// A linear part of another API's memory.
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC: 88 { offset: u64, size: u64, flags: c_uint, reserved: [c_uint; 16], }

    /// An array in another API's memory.
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC: 120 {
        offset: u64, arrayDesc: CUDA_ARRAY3D_DESCRIPTOR, numLevels: c_uint, reserved: [c_uint; 16],
    }

    /// A kernel node (`_v2`; the first version ends before `kern`).
    CUDA_KERNEL_NODE_PARAMS: 72 {
        func: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint,
        blockDimZ: c_uint, sharedMemBytes: c_uint, kernelParams: *mut *mut c_void, extra: *mut *mut c_void,
        kern: CUkernel, ctx: CUcontext,
    }

    /// A memset node.
    CUDA_MEMSET_NODE_PARAMS: 40 {
        dst: CUdeviceptr, pitch: usize, value: c_uint, elementSize: c_uint, width: usize, height: usize,
    }

    /// A host function node.
    CUDA_HOST_NODE_PARAMS: 16 { func: CUhostFn, userData: *mut c_void, }

    /// A memory allocation node.
    CUDA_MEM_ALLOC_NODE_PARAMS: 120 {
        poolProps: CUmemPoolProps, accessDescs: *const CUmemAccessDesc, accessDescCount: usize, bytesize: usize,
        dptr: CUdeviceptr,
    }

    /// Any node, as `cuGraphAddNode` takes it.
    CUgraphNodeParams: 256 { type_: c_uint, reserved0: [c_int; 3], params: [u64; 29], reserved2: u64, }

    /// Ports and type of an edge.
    CUgraphEdgeData: 8 { from_port: u8, to_port: u8, type_: u8, reserved: [u8; 5], }

    /// Parameters and result of `cuGraphInstantiateWithParams`.
    CUDA_GRAPH_INSTANTIATE_PARAMS: 32 {
        flags: u64, hUploadStream: CUstream, hErrNode_out: CUgraphNode, result_out: c_uint,
    }

    /// Result of `cuGraphExecUpdate_v2`.
    CUgraphExecUpdateResultInfo: 24 { result: c_uint, errorNode: CUgraphNode, errorFromNode: CUgraphNode, }

    /// One operation of `cuStreamBatchMemOp`.
    CUstreamBatchMemOpParams: 48 { pad: [u64; 6], }

    /// An execution affinity of `cuCtxCreate_v3`.
    CUexecAffinityParam: 8 { type_: c_uint, smCount: c_uint, }

    /// The parameters of `cuCtxCreate_v4`.
    CUctxCreateParams: 24 {
        execAffinityParams: *mut CUexecAffinityParam, numExecAffinityParams: c_int, cigParams: *mut c_void,
    }

    /// A device resource; 144 bytes for every type.
    CUdevResource: 144 { type_: c_uint, padding: [u8; 92], resource: [u64; 6], }
}

impl CUmemLocation {
    /// Returns the location of a device.
    pub fn on(device: CUdevice) -> Self {
        Self {
            type_: CU_MEM_LOCATION_TYPE_DEVICE,
            id: device,
        }
    }

    /// Returns the ordinal of the device, for a location on a device.
    pub fn device(self) -> Option<CUdevice> {
        match self.type_ {
            CU_MEM_LOCATION_TYPE_DEVICE => Some(self.id),
            CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN => Some(self.id & 0xff),
            _ => None,
        }
    }
}

/// The resource of a [`CUDA_RESOURCE_DESC`], by its `resType` (0 array, 1 mipmapped, 2 linear, 3 pitched).
#[repr(C)]
#[derive(Clone, Copy)]
pub union CUDA_RESOURCE {
    /// An array.
    pub array: CUarray,
    /// A mipmapped array.
    pub mipmapped: CUmipmappedArray,
    /// Linear memory.
    pub linear: CUDA_RESOURCE_LINEAR,
    /// Pitched memory.
    pub pitch2d: CUDA_RESOURCE_PITCH2D,
    /// Space for the other resources.
    pub reserved: [u64; 16],
}

structs! {
    /// Linear memory as a resource.
    CUDA_RESOURCE_LINEAR: 24 { devPtr: CUdeviceptr, format: c_uint, numChannels: c_uint, sizeInBytes: usize, }

    /// Pitched memory as a resource.
    CUDA_RESOURCE_PITCH2D: 40 {
        devPtr: CUdeviceptr, format: c_uint, numChannels: c_uint, width: usize, height: usize, pitchInBytes: usize,
    }
}

/// Returns the bytes of one channel of an array format, or `None` for a block-compressed or planar format.
pub fn channel_bytes(format: c_uint) -> Option<usize> {
    match format {
        0x01 | 0x08 | 0xc0..=0xc2 | 0xc6..=0xc8 => Some(1),
        0x02 | 0x09 | 0x10 | 0xc3..=0xc5 | 0xc9..=0xcb => Some(2),
        0x03 | 0x0a | 0x20 => Some(4),
        _ => None,
    }
}

/// NVML's handle of a device.
pub type nvmlDevice_t = *mut std::ffi::c_void;

structs! {
    /// NVML's memory info, first version: total = free + used.
    nvmlMemory_t: 24 { total: u64, free: u64, used: u64, }

    /// NVML's memory info, second version: the driver's own memory is in `reserved`.
    nvmlMemory_v2_t: 40 { version: c_uint, total: u64, reserved: u64, free: u64, used: u64, }

    /// A process on a device, as NVML lists it.
    nvmlProcessInfo_t: 24 { pid: c_uint, usedGpuMemory: u64, gpuInstanceId: c_uint, computeInstanceId: c_uint, }
}

structs! {
    /// One mapping of physical memory into a sparse array.
    CUarrayMapInfo: 96 {
        resourceType: c_uint, resource: u64, subresourceType: c_uint, subresource: [u64; 4], memOperationType: c_uint,
        memHandleType: c_uint, memHandle: CUmemGenericAllocationHandle, offset: u64, deviceBitMask: c_uint,
        flags: c_uint, reserved: [c_uint; 2],
    }
}
