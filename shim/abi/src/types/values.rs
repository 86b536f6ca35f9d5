//! The enumeration values that this project uses.

use std::ffi::c_uint;

use super::CUstream;

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
/// Unified: the pointer itself determines the kind of memory.
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
/// `cuGetProcAddress_v2` status: the name exists only in a newer version than requested.
pub const CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT: c_uint = 2;

/// A `CUstreamCaptureStatus`.
pub type CUstreamCaptureStatus = c_uint;
/// The stream is not capturing.
pub const CU_STREAM_CAPTURE_STATUS_NONE: CUstreamCaptureStatus = 0;
/// The stream is capturing.
pub const CU_STREAM_CAPTURE_STATUS_ACTIVE: CUstreamCaptureStatus = 1;
/// The stream's capture has failed and must be ended.
pub const CU_STREAM_CAPTURE_STATUS_INVALIDATED: CUstreamCaptureStatus = 2;
/// A `CUstreamCaptureMode`.
pub type CUstreamCaptureMode = c_uint;
/// No thread may make a potentially unsafe call during the capture.
pub const CU_STREAM_CAPTURE_MODE_GLOBAL: CUstreamCaptureMode = 0;
/// The capturing thread may not make a potentially unsafe call.
pub const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: CUstreamCaptureMode = 1;
/// Every thread may make potentially unsafe calls.
pub const CU_STREAM_CAPTURE_MODE_RELAXED: CUstreamCaptureMode = 2;

/// `extra` of a launch: end of the list.
pub const CU_LAUNCH_PARAM_END: usize = 0;
/// `extra` of a launch: a pointer to the packed arguments follows.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
/// `extra` of a launch: a pointer to the size of the packed arguments follows.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: usize = 2;

/// A `CUmemLocationType`.
pub type CUmemLocationType = c_uint;
/// No location.
pub const CU_MEM_LOCATION_TYPE_INVALID: CUmemLocationType = 0;
/// On a device; the id is its ordinal.
pub const CU_MEM_LOCATION_TYPE_DEVICE: CUmemLocationType = 1;
/// In one part of a device's memory; the lowest byte of the id is the device's ordinal.
pub const CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN: CUmemLocationType = 6;
/// On the host.
pub const CU_MEM_LOCATION_TYPE_HOST: CUmemLocationType = 2;
/// On one NUMA node of the host; the id is its number.
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA: CUmemLocationType = 3;
/// `CUmemAllocationProp::type_`: pinned.
pub const CU_MEM_ALLOCATION_TYPE_PINNED: c_uint = 1;
/// `CUmemPoolProps::allocType`: managed.
pub const CU_MEM_ALLOCATION_TYPE_MANAGED: c_uint = 2;
/// Export as a POSIX file descriptor.
pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: c_uint = 1;
/// Export to other hosts of a fabric.
pub const CU_MEM_HANDLE_TYPE_FABRIC: c_uint = 8;

/// Set in `CUDA_ARRAY3D_DESCRIPTOR::Flags`: `Depth` counts layers.
pub const CUDA_ARRAY3D_LAYERED: c_uint = 1;
/// Set in `CUDA_ARRAY3D_DESCRIPTOR::Flags`: six faces per cube.
pub const CUDA_ARRAY3D_CUBEMAP: c_uint = 4;
/// Set in `CUDA_ARRAY3D_DESCRIPTOR::Flags`: sparse, with no memory of its own.
pub const CUDA_ARRAY3D_SPARSE: c_uint = 0x40;
/// Set in `CUDA_ARRAY3D_DESCRIPTOR::Flags`: memory is mapped later.
pub const CUDA_ARRAY3D_DEFERRED_MAPPING: c_uint = 0x80;
