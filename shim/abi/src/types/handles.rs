//! Handles, addresses and callbacks.

use std::ffi::{c_int, c_void};

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
    /// A kernel in a module, for one context.
    CUfunction = CUfunc_st;
    /// A context-independent library.
    CUlibrary = CUlib_st;
    /// A kernel in a library; launch calls accept it as a `CUfunction`.
    CUkernel = CUkern_st;
    /// A stream: a queue of work.
    CUstream = CUstream_st;
    /// An event: a point in a stream.
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
/// A handle for other hosts of a fabric: 64 bytes that the driver defines.
pub type FabricHandle = [u64; 8];
/// A host function queued in a stream.
pub type CUhostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
/// The callback of `cuStreamAddCallback`; the status is a numeric result.
pub type CUstreamCallback =
    Option<unsafe extern "C" fn(stream: CUstream, status: u32, user_data: *mut c_void)>;
/// A callback that returns the dynamic shared memory of a block of this size.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(block_size: c_int) -> usize>;
