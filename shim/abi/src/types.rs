//! The C types of the CUDA driver API, as far as this project passes them through, reads or fills them.
//!
//! Handles are pointers to types without content, device addresses are plain `u64`, enumerations are
//! `u32` with named constants. Every struct is the layout of the newest version of its function (the
//! `_v2` structs where there are two), and its size is asserted, so a slip fails the build.

#![allow(non_camel_case_types, reason = "these are the driver's own names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

macro_rules! handles {
    ($($(#[$doc:meta])* $handle:ident = $target:ident;)*) => {$(
        #[doc = concat!("What a [`", stringify!($handle), "`] points to; known to the driver only.")]
        #[repr(C)]
        #[derive(Debug)]
        pub struct $target {
            _opaque: [u8; 0],
        }
        $(#[$doc])*
        pub type $handle = *mut $target;
    )*};
}

handles! {
    /// A context: one process's state on one device.
    CUcontext = CUctx_st;
    /// A loaded module.
    CUmodule = CUmod_st;
    /// A kernel in a module, bound to a context.
    CUfunction = CUfunc_st;
    /// A context-independent library.
    CUlibrary = CUlib_st;
    /// A kernel in a library; launch calls take it in a `CUfunction`'s place.
    CUkernel = CUkern_st;
    /// A queue of work.
    CUstream = CUstream_st;
    /// A mark in a stream.
    CUevent = CUevent_st;
    /// An array: memory with a format and a shape.
    CUarray = CUarray_st;
    /// An array with its mip levels.
    CUmipmappedArray = CUmipmappedArray_st;
    /// A memory pool.
    CUmemoryPool = CUmemPoolHandle_st;
    /// A graph.
    CUgraph = CUgraph_st;
    /// A node of a graph.
    CUgraphNode = CUgraphNode_st;
    /// A graph ready to launch.
    CUgraphExec = CUgraphExec_st;
    /// A node that a device can update.
    CUgraphDeviceNode = CUgraphDeviceUpdatableNode_st;
    /// A user object kept alive by graphs.
    CUuserObject = CUuserObject_st;
    /// A texture reference (before texture objects).
    CUtexref = CUtexref_st;
    /// A surface reference (before surface objects).
    CUsurfref = CUsurfref_st;
    /// The state of a JIT link.
    CUlinkState = CUlinkState_st;
    /// Memory imported from another API.
    CUexternalMemory = CUextMemory_st;
    /// A semaphore imported from another API.
    CUexternalSemaphore = CUextSemaphore_st;
    /// A resource shared with a graphics API.
    CUgraphicsResource = CUgraphicsResource_st;
    /// A green context: a context on a part of a device.
    CUgreenCtx = CUgreenCtx_st;
    /// A description of device resources.
    CUdevResourceDesc = CUdevResourceDesc_st;
    /// A registration for asynchronous notifications.
    CUasyncCallbackHandle = CUasyncCallbackEntry_st;
    /// A registration for log messages.
    CUlogsCallbackHandle = CUlogsCallbackEntry_st;
    /// An EGL stream connection.
    CUeglStreamConnection = CUeglStreamConnection_st;
    /// A handle of a checkpoint or coredump service.
    CUcoredumpCallbackHandle = CUcoredumpCallbackEntry_st;
}

/// A device's ordinal in this process.
pub type CUdevice = c_int;
/// An address in device memory.
pub type CUdeviceptr = u64;
/// A texture object.
pub type CUtexObject = u64;
/// A surface object.
pub type CUsurfObject = u64;
/// A physical allocation of the virtual memory calls.
pub type CUmemGenericAllocationHandle = u64;
/// A host function queued in a stream.
pub type CUhostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
/// The callback of `cuStreamAddCallback`; the status is a numeric result.
pub type CUstreamCallback =
    Option<unsafe extern "C" fn(stream: CUstream, status: u32, user_data: *mut c_void)>;
/// How much dynamic shared memory a block of this size wants.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(block_size: c_int) -> usize>;

// ---- enumerations: the values this project names ----

/// A `CUdevice_attribute`.
pub type CUdevice_attribute = c_uint;
/// A `CUmemorytype`: the `CU_MEMORYTYPE_…` constants.
pub type CUmemorytype = c_uint;
/// Host memory.
pub const CU_MEMORYTYPE_HOST: CUmemorytype = 1;
/// Device memory.
pub const CU_MEMORYTYPE_DEVICE: CUmemorytype = 2;
/// A CUDA array.
pub const CU_MEMORYTYPE_ARRAY: CUmemorytype = 3;
/// Unified: the pointer itself tells.
pub const CU_MEMORYTYPE_UNIFIED: CUmemorytype = 4;

/// `CUmemcpy3DOperand::type_`: a CUDA array.
pub const CU_MEMCPY_OPERAND_TYPE_ARRAY: c_uint = 2;

/// The legacy default stream, by its special handle.
pub const CU_STREAM_LEGACY: CUstream = 1 as CUstream;
/// The calling thread's default stream, by its special handle.
pub const CU_STREAM_PER_THREAD: CUstream = 2 as CUstream;
/// `cuStreamCreate`: does not wait for the legacy default stream.
pub const CU_STREAM_NON_BLOCKING: c_uint = 1;
/// `cuEventCreate`: records no time.
pub const CU_EVENT_DISABLE_TIMING: c_uint = 2;
/// `cuEventCreate`: may be shared with other processes.
pub const CU_EVENT_INTERPROCESS: c_uint = 4;

/// `cuGetProcAddress` flags: the per-thread default-stream forms.
pub const CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: u64 = 2;
/// `cuGetProcAddress_v2` status: found.
pub const CU_GET_PROC_ADDRESS_SUCCESS: c_uint = 0;
/// `cuGetProcAddress_v2` status: no such name.
pub const CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND: c_uint = 1;
/// `cuGetProcAddress_v2` status: the name exists, in a newer version than asked for.
pub const CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT: c_uint = 2;

/// A `CUstreamCaptureStatus`.
pub type CUstreamCaptureStatus = c_uint;
/// The stream is not capturing.
pub const CU_STREAM_CAPTURE_STATUS_NONE: CUstreamCaptureStatus = 0;
/// The stream is capturing.
pub const CU_STREAM_CAPTURE_STATUS_ACTIVE: CUstreamCaptureStatus = 1;
/// The stream's capture has failed and wants its end.
pub const CU_STREAM_CAPTURE_STATUS_INVALIDATED: CUstreamCaptureStatus = 2;
/// A `CUstreamCaptureMode`.
pub type CUstreamCaptureMode = c_uint;
/// No thread may make a potentially unsafe call meanwhile.
pub const CU_STREAM_CAPTURE_MODE_GLOBAL: CUstreamCaptureMode = 0;
/// This thread may not.
pub const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: CUstreamCaptureMode = 1;
/// Anyone may.
pub const CU_STREAM_CAPTURE_MODE_RELAXED: CUstreamCaptureMode = 2;

/// `extra` of a launch: end of the list.
pub const CU_LAUNCH_PARAM_END: usize = 0;
/// `extra` of a launch: a pointer to the packed arguments follows.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
/// `extra` of a launch: a pointer to the size of the packed arguments follows.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: usize = 2;

/// A `CUmemLocationType`.
pub type CUmemLocationType = c_uint;
/// Nowhere.
pub const CU_MEM_LOCATION_TYPE_INVALID: CUmemLocationType = 0;
/// On a device; the id is its ordinal.
pub const CU_MEM_LOCATION_TYPE_DEVICE: CUmemLocationType = 1;
/// In one part of a device's memory; the id's lowest byte is the device's ordinal.
pub const CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN: CUmemLocationType = 6;
/// On the host.
pub const CU_MEM_LOCATION_TYPE_HOST: CUmemLocationType = 2;
/// On one node of the host; the id is its number.
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA: CUmemLocationType = 3;
/// `CUmemAllocationProp::type_`: pinned.
pub const CU_MEM_ALLOCATION_TYPE_PINNED: c_uint = 1;
/// `CUmemPoolProps::allocType`: managed.
pub const CU_MEM_ALLOCATION_TYPE_MANAGED: c_uint = 2;
/// Export as a POSIX file descriptor.
pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: c_uint = 1;
/// Export to other hosts of a fabric.
pub const CU_MEM_HANDLE_TYPE_FABRIC: c_uint = 8;

/// Set in [`CUDA_ARRAY3D_DESCRIPTOR::Flags`]: `Depth` counts layers.
pub const CUDA_ARRAY3D_LAYERED: c_uint = 1;
/// Set in [`CUDA_ARRAY3D_DESCRIPTOR::Flags`]: six faces a cube.
pub const CUDA_ARRAY3D_CUBEMAP: c_uint = 4;
/// Set in [`CUDA_ARRAY3D_DESCRIPTOR::Flags`]: sparse, with no memory of its own.
pub const CUDA_ARRAY3D_SPARSE: c_uint = 0x40;
/// Set in [`CUDA_ARRAY3D_DESCRIPTOR::Flags`]: memory is mapped later.
pub const CUDA_ARRAY3D_DEFERRED_MAPPING: c_uint = 0x80;

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

    /// A two-dimensional copy as CUDA had it before 3.2.
    CUDA_MEMCPY2D_v1: 96 {
        srcXInBytes: c_uint, srcY: c_uint, srcMemoryType: CUmemorytype, srcHost: *const c_void, srcDevice: c_uint,
        srcArray: CUarray, srcPitch: c_uint,
        dstXInBytes: c_uint, dstY: c_uint, dstMemoryType: CUmemorytype, dstHost: *mut c_void, dstDevice: c_uint,
        dstArray: CUarray, dstPitch: c_uint,
        WidthInBytes: c_uint, Height: c_uint,
    }

    /// A three-dimensional copy as CUDA had it before 3.2.
    CUDA_MEMCPY3D_v1: 144 {
        srcXInBytes: c_uint, srcY: c_uint, srcZ: c_uint, srcLOD: c_uint, srcMemoryType: CUmemorytype,
        srcHost: *const c_void, srcDevice: c_uint, srcArray: CUarray, reserved0: *mut c_void,
        srcPitch: c_uint, srcHeight: c_uint,
        dstXInBytes: c_uint, dstY: c_uint, dstZ: c_uint, dstLOD: c_uint, dstMemoryType: CUmemorytype,
        dstHost: *mut c_void, dstDevice: c_uint, dstArray: CUarray, reserved1: *mut c_void,
        dstPitch: c_uint, dstHeight: c_uint,
        WidthInBytes: c_uint, Height: c_uint, Depth: c_uint,
    }

    /// One end of a three-dimensional copy of a batch: a pointer (`type_` 1) with its row length and layer height in
    /// `at[1..=2]`, or an array (`type_` 2) with an offset in `at[1..=3]`.
    CUmemcpy3DOperand: 40 { type_: c_uint, at: [u64; 4], }

    /// One copy of a three-dimensional batch.
    CUDA_MEMCPY3D_BATCH_OP: 112 {
        src: CUmemcpy3DOperand, dst: CUmemcpy3DOperand, width: usize, height: usize, depth: usize,
        srcAccessOrder: c_uint, flags: c_uint,
    }

    /// One decompression of a batch.
    CUmemDecompressParams: 64 {
        srcNumBytes: usize, dstNumBytes: usize, dstActBytes: *mut u32, src: *const c_void, dst: *mut c_void,
        algo: c_uint, padding: [u8; 20],
    }

    /// How a batched copy orders its source and where its ends are.
    CUmemcpyAttributes: 24 {
        srcAccessOrder: c_uint, srcLocHint: CUmemLocation, dstLocHint: CUmemLocation, flags: c_uint,
    }

    /// A one- or two-dimensional array as CUDA had it before 3.2.
    CUDA_ARRAY_DESCRIPTOR_v1: 16 { Width: c_uint, Height: c_uint, Format: c_uint, NumChannels: c_uint, }

    /// An array of up to three dimensions as CUDA had it before 3.2.
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

    /// What a texture or surface object reads.
    CUDA_RESOURCE_DESC: 144 { resType: c_uint, res: CUDA_RESOURCE, flags: c_uint, }

    /// How a texture object samples.
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

    /// Where memory is.
    CUmemLocation: 8 { type_: CUmemLocationType, id: c_int, }

    /// What physical memory `cuMemCreate` is to make.
    CUmemAllocationProp: 32 {
        type_: c_uint, requestedHandleTypes: c_uint, location: CUmemLocation, win32HandleMetaData: *mut c_void,
        compressionType: u8, gpuDirectRDMACapable: u8, usage: u16, reserved: [u8; 4],
    }

    /// Who may reach mapped memory.
    CUmemAccessDesc: 12 { location: CUmemLocation, flags: c_uint, }

    /// What pool `cuMemPoolCreate` is to make.
    CUmemPoolProps: 88 {
        allocType: c_uint, handleTypes: c_uint, location: CUmemLocation, win32SecurityAttributes: *mut c_void,
        maxSize: usize, usage: u16, reserved: [u8; 54],
    }

    /// A pool allocation on its way to another process.
    CUmemPoolPtrExportData: 64 { reserved: [u8; 64], }

    /// What multicast object `cuMulticastCreate` is to make.
    CUmulticastObjectProp: 32 { numDevices: c_uint, size: usize, handleTypes: u64, flags: u64, }

    /// Memory on its way to another process.
    CUipcMemHandle: 64 { reserved: [u8; 64], }

    /// An event on its way to another process.
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

    /// An edge's ports and kind.
    CUgraphEdgeData: 8 { from_port: u8, to_port: u8, type_: u8, reserved: [u8; 5], }

    /// How `cuGraphInstantiateWithParams` went.
    CUDA_GRAPH_INSTANTIATE_PARAMS: 32 {
        flags: u64, hUploadStream: CUstream, hErrNode_out: CUgraphNode, result_out: c_uint,
    }

    /// How `cuGraphExecUpdate_v2` went.
    CUgraphExecUpdateResultInfo: 24 { result: c_uint, errorNode: CUgraphNode, errorFromNode: CUgraphNode, }

    /// One operation of `cuStreamBatchMemOp`.
    CUstreamBatchMemOpParams: 48 { pad: [u64; 6], }

    /// An execution affinity of `cuCtxCreate_v3`.
    CUexecAffinityParam: 8 { type_: c_uint, smCount: c_uint, }

    /// The parameters of `cuCtxCreate_v4`.
    CUctxCreateParams: 24 {
        execAffinityParams: *mut CUexecAffinityParam, numExecAffinityParams: c_int, cigParams: *mut c_void,
    }

    /// A device resource; 144 bytes whatever its kind.
    CUdevResource: 144 { type_: c_uint, padding: [u8; 92], resource: [u64; 6], }
}

impl CUmemLocation {
    /// On a device.
    pub fn on(device: CUdevice) -> Self {
        Self {
            type_: CU_MEM_LOCATION_TYPE_DEVICE,
            id: device,
        }
    }

    /// The ordinal of the device it is on, if it is on one.
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
    /// Room for others.
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

/// Bytes of one channel of an array format, or `None` for a block-compressed or planar format.
pub fn channel_bytes(format: c_uint) -> Option<usize> {
    match format {
        0x01 | 0x08 | 0xc0..=0xc2 | 0xc6..=0xc8 => Some(1),
        0x02 | 0x09 | 0x10 | 0xc3..=0xc5 | 0xc9..=0xcb => Some(2),
        0x03 | 0x0a | 0x20 => Some(4),
        _ => None,
    }
}

/// What a driver call reads through a caller's pointer; here so that signatures find it beside the types.
pub use crate::input::In;
/// NVML's handle of a device.
pub type nvmlDevice_t = *mut std::ffi::c_void;

structs! {
    /// NVML's memory info, first version: total = free + used.
    nvmlMemory_t: 24 { total: u64, free: u64, used: u64, }

    /// NVML's memory info, second version: what the driver keeps for itself is told apart.
    nvmlMemory_v2_t: 40 { version: c_uint, total: u64, reserved: u64, free: u64, used: u64, }
}

structs! {
    /// One mapping of physical memory into a sparse array.
    CUarrayMapInfo: 96 {
        resourceType: c_uint, resource: u64, subresourceType: c_uint, subresource: [u64; 4], memOperationType: c_uint,
        memHandleType: c_uint, memHandle: CUmemGenericAllocationHandle, offset: u64, deviceBitMask: c_uint,
        flags: c_uint, reserved: [c_uint; 2],
    }
}
