//! The table of driver functions.
//!
//! `driver_table!(with)` passes every row to the macro `with!`, in the form
//!
//! ```text
//! hooked {
//!     /// charged to the current device: the bytes asked for
//!     "cuMemAlloc" 3020 call memory::alloc fn cuMemAlloc_v2(dptr: Out<CUdeviceptr>, bytes: usize);
//!     "cuLaunchKernel" 4000 fast launch::kernel(stream) fn cuLaunchKernel(f: CUfunction, …, stream: CUstream, …) twin cuLaunchKernel_ptsz;
//! }
//! used { fn cuStreamQuery(stream: CUstream) twin cuStreamQuery_ptsz; }
//! ```
//!
//! * The base name and the version are the arguments of `cuGetProcAddress`: the version is the first CUDA version (`major *
//!   1000 + minor * 10`) for which the driver returns this function.
//! * `call` rows run inside the re-entrancy guard and the panic boundary. `submit` rows are the launch path, which has its own.
//!   The `fast` row is a submission with its own assembly, on machines that have it. `query` rows are `call` rows that ask for no
//!   work ([`Query::Answers`]).
//! * The path is the hook, seen from `shim/src/face/exports.rs`. The names in brackets are the arguments that the hook
//!   receives, in its order; without brackets it receives all.
//! * The name after `fn` is the exported symbol.
//! * `twin` is the per-thread default stream form (`_ptsz`, `_ptds`) with the same signature and hook.
//! * The line above the first row of a hook describes the hook's effect; `DRIVER.md` shows it for all rows of the hook.
//! * `used` rows are functions that the library calls but does not hook.
//!
//! The rows for memory are in `table/memory.rs`, those of NVML in `table/nvml.rs`.

mod memory;
mod nvml;
mod others;

pub use others::{LEFT_OUT, LeftOut, Query, query_of};

/// Passes every row of the table to the macro `$with!`; the module's documentation describes their form.
#[macro_export]
macro_rules! driver_table {
    ($with:ident) => {
        $crate::memory_rows! { $with hooked {
            // ---- initialisation and lookup ----
            /// registers the process after the driver's own initialisation
            "cuInit" 2000 call context::init fn cuInit(flags: u32);
            /// returns the library's own function for a hooked name
            "cuGetProcAddress" 11030 call lookup::proc_address fn cuGetProcAddress(name: *const c_char, pfn: Out<*mut c_void>, version: i32, flags: u64);
            "cuGetProcAddress" 12000 call lookup::proc_address(name, pfn, version, flags) fn cuGetProcAddress_v2(name: *const c_char, pfn: Out<*mut c_void>, version: i32, flags: u64, status: Out<u32>);

            // ---- contexts ----
            /// records the context, and that the thread's device may change
            "cuCtxCreate" 2000 call context::created(ctx, device) fn cuCtxCreate(ctx: Out<CUcontext>, flags: u32, device: CUdevice);
            "cuCtxCreate" 3020 call context::created(ctx, device) fn cuCtxCreate_v2(ctx: Out<CUcontext>, flags: u32, device: CUdevice);
            "cuCtxCreate" 11040 call context::created(ctx, device) fn cuCtxCreate_v3(ctx: Out<CUcontext>, affinity: *mut CUexecAffinityParam, count: i32, flags: u32, device: CUdevice);
            "cuCtxCreate" 12050 call context::created(ctx, device) fn cuCtxCreate_v4(ctx: Out<CUcontext>, params: *mut CUctxCreateParams, flags: u32, device: CUdevice);
            /// releases the charges of the context
            "cuCtxDestroy" 2000 call context::destroy fn cuCtxDestroy(ctx: CUcontext);
            "cuCtxDestroy" 4000 call context::destroy fn cuCtxDestroy_v2(ctx: CUcontext);
            /// records one more reference
            "cuCtxAttach" 2000 call context::attach(ctx) fn cuCtxAttach(ctx: Out<CUcontext>, flags: u32);
            /// releases the charges of the context, at the last reference
            "cuCtxDetach" 2000 call context::detach fn cuCtxDetach(ctx: CUcontext);
            /// records that the thread's device may change
            "cuCtxSetCurrent" 4000 query context::set_current fn cuCtxSetCurrent(ctx: CUcontext);
            "cuCtxPushCurrent" 2000 query context::set_current fn cuCtxPushCurrent(ctx: CUcontext);
            "cuCtxPushCurrent" 4000 query context::set_current fn cuCtxPushCurrent_v2(ctx: CUcontext);
            /// records that the thread's device may change
            "cuCtxPopCurrent" 2000 query context::changes() fn cuCtxPopCurrent(ctx: Out<CUcontext>);
            "cuCtxPopCurrent" 4000 query context::changes() fn cuCtxPopCurrent_v2(ctx: Out<CUcontext>);
            /// charged: the driver's memory for a larger stack of every thread that fits on the device, or for a larger heap,
            /// beyond the default
            "cuCtxSetLimit" 3010 call context::set_limit fn cuCtxSetLimit(limit: u32, value: usize);
            /// records that its allocations belong to the device's primary context
            "cuGreenCtxCreate" 12040 call context::green_created(green) fn cuGreenCtxCreate(green: Out<CUgreenCtx>, desc: CUdevResourceDesc, device: CUdevice, flags: u32);
            /// waits for submitted work and forgets the streams; releases the charges of the primary context if this was its
            /// last reference
            "cuGreenCtxDestroy" 12040 call context::green_destroy fn cuGreenCtxDestroy(green: CUgreenCtx);
            /// releases the charges of the context, at the last release
            "cuDevicePrimaryCtxRelease" 7000 call context::primary_release fn cuDevicePrimaryCtxRelease(device: CUdevice);
            "cuDevicePrimaryCtxRelease" 11000 call context::primary_release fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
            /// releases the charges of the context
            "cuDevicePrimaryCtxReset" 7000 call context::primary_reset fn cuDevicePrimaryCtxReset(device: CUdevice);
            "cuDevicePrimaryCtxReset" 11000 call context::primary_reset fn cuDevicePrimaryCtxReset_v2(device: CUdevice);

            // ---- checkpoints ----
            /// releases the devices first, and makes submissions wait while the process is locked
            "cuCheckpointProcessLock" 12080 call checkpoint::lock(pid) fn cuCheckpointProcessLock(pid: i32, args: *mut c_void);
            /// lets submissions continue
            "cuCheckpointProcessUnlock" 12080 call checkpoint::unlock(pid) fn cuCheckpointProcessUnlock(pid: i32, args: *mut c_void);

            // ---- streams and events ----
            /// remembers the stream, so that a query of it is answered while the process is evicted
            "cuStreamCreate" 2000 call stream::created(stream) fn cuStreamCreate(stream: Out<CUstream>, flags: u32);
            "cuStreamCreateWithPriority" 5050 call stream::created(stream) fn cuStreamCreateWithPriority(stream: Out<CUstream>, flags: u32, priority: i32);
            "cuGreenCtxStreamCreate" 12050 call stream::created(stream) fn cuGreenCtxStreamCreate(stream: Out<CUstream>, green: CUgreenCtx, flags: u32, priority: i32);
            /// remembers the event, so that a query of it is answered while the process is evicted
            "cuEventCreate" 2000 call stream::event_created(event) fn cuEventCreate(event: Out<CUevent>, flags: u32);
            /// forgets the event
            "cuEventDestroy" 2000 call stream::event_destroy fn cuEventDestroy(event: CUevent);
            "cuEventDestroy" 4000 call stream::event_destroy fn cuEventDestroy_v2(event: CUevent);
            /// forgets the stream, whose work is still waited for
            "cuStreamDestroy" 2000 call stream::destroy fn cuStreamDestroy(stream: CUstream);
            "cuStreamDestroy" 4000 call stream::destroy fn cuStreamDestroy_v2(stream: CUstream);
            /// excludes the stream from the lock while it captures
            "cuStreamBeginCapture" 10000 call stream::begin_capture(stream) fn cuStreamBeginCapture(stream: CUstream) twin cuStreamBeginCapture_ptsz;
            "cuStreamBeginCapture" 10010 call stream::begin_capture(stream) fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) twin cuStreamBeginCapture_v2_ptsz;
            /// excludes the stream from the lock while it captures, and leaves the graph's memory as it is if the capture is lost
            "cuStreamBeginCaptureToGraph" 12030 call stream::begin_capture_into(stream) fn cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode) twin cuStreamBeginCaptureToGraph_ptsz;
            "cuStreamBeginCaptureToCig" 13010 call stream::begin_capture_into(stream) fn cuStreamBeginCaptureToCig(stream: CUstream, params: *mut c_void) twin cuStreamBeginCaptureToCig_ptsz;
            "cuStreamBeginRecaptureToGraph" 13030 call stream::begin_capture_into(stream) fn cuStreamBeginRecaptureToGraph(stream: CUstream, mode: CUstreamCaptureMode, graph: CUgraph, callback: *const c_void, data: *mut c_void) twin cuStreamBeginRecaptureToGraph_ptsz;

            /// ends the exclusion
            "cuStreamEndCapture" 10000 call stream::end_capture(stream) fn cuStreamEndCapture(stream: CUstream, graph: Out<CUgraph>) twin cuStreamEndCapture_ptsz;
            "cuStreamEndCaptureToCig" 13010 call stream::end_capture(stream) fn cuStreamEndCaptureToCig(stream: CUstream) twin cuStreamEndCaptureToCig_ptsz;

            // ---- explicit synchronisations: release points ----
            /// a release point of the lock, and the end of a step
            "cuCtxSynchronize" 2000 call stream::wait() fn cuCtxSynchronize();
            "cuCtxSynchronize" 13000 call stream::wait() fn cuCtxSynchronize_v2(ctx: CUcontext);
            "cuStreamSynchronize" 2000 call stream::wait() fn cuStreamSynchronize(stream: CUstream) twin cuStreamSynchronize_ptsz;
            "cuEventSynchronize" 2000 call stream::wait() fn cuEventSynchronize(event: CUevent);

            // ---- synchronous copies: release points ----
            /// counted with its bytes; a release point of the lock
            "cuMemcpy" 4000 call copy::bytes(bytes) fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) twin cuMemcpy_ptds;
            "cuMemcpyPeer" 4000 call copy::bytes(bytes) fn cuMemcpyPeer(dst: CUdeviceptr, dst_ctx: CUcontext, src: CUdeviceptr, src_ctx: CUcontext, bytes: usize) twin cuMemcpyPeer_ptds;
            "cuMemcpyHtoD" 3020 call copy::bytes(bytes) fn cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize) twin cuMemcpyHtoD_v2_ptds;
            /// counted with its bytes; a release point of the lock, and the end of a step
            "cuMemcpyDtoH" 3020 call copy::to_host(bytes) fn cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize) twin cuMemcpyDtoH_v2_ptds;
            "cuMemcpyDtoD" 3020 call copy::bytes(bytes) fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) twin cuMemcpyDtoD_v2_ptds;
            "cuMemcpyDtoA" 3020 call copy::bytes(bytes) fn cuMemcpyDtoA_v2(dst: CUarray, offset: usize, src: CUdeviceptr, bytes: usize) twin cuMemcpyDtoA_v2_ptds;
            "cuMemcpyAtoD" 3020 call copy::bytes(bytes) fn cuMemcpyAtoD_v2(dst: CUdeviceptr, src: CUarray, offset: usize, bytes: usize) twin cuMemcpyAtoD_v2_ptds;
            "cuMemcpyHtoA" 3020 call copy::bytes(bytes) fn cuMemcpyHtoA_v2(dst: CUarray, offset: usize, src: *const c_void, bytes: usize) twin cuMemcpyHtoA_v2_ptds;
            "cuMemcpyAtoH" 3020 call copy::to_host(bytes) fn cuMemcpyAtoH_v2(dst: *mut c_void, src: CUarray, offset: usize, bytes: usize) twin cuMemcpyAtoH_v2_ptds;
            "cuMemcpyAtoA" 3020 call copy::bytes(bytes) fn cuMemcpyAtoA_v2(dst: CUarray, dst_offset: usize, src: CUarray, src_offset: usize, bytes: usize) twin cuMemcpyAtoA_v2_ptds;
            /// counted with its bytes; a release point of the lock
            "cuMemcpy2D" 3020 call copy::region(copy) fn cuMemcpy2D_v2(copy: In<CUDA_MEMCPY2D>) twin cuMemcpy2D_v2_ptds;
            "cuMemcpy2DUnaligned" 3020 call copy::region(copy) fn cuMemcpy2DUnaligned_v2(copy: In<CUDA_MEMCPY2D>) twin cuMemcpy2DUnaligned_v2_ptds;
            "cuMemcpy3D" 3020 call copy::region(copy) fn cuMemcpy3D_v2(copy: In<CUDA_MEMCPY3D>) twin cuMemcpy3D_v2_ptds;
            "cuMemcpy3DPeer" 4000 call copy::region(copy) fn cuMemcpy3DPeer(copy: In<CUDA_MEMCPY3D_PEER>) twin cuMemcpy3DPeer_ptds;

            // ---- kernels and graphs: locked ----
            /// counted and locked
            "cuLaunchKernel" 4000 fast launch::kernel(stream) fn cuLaunchKernel(f: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) twin cuLaunchKernel_ptsz;
            /// counted and locked
            "cuLaunchKernelEx" 11060 submit launch::kernel_ex(config) fn cuLaunchKernelEx(config: In<CUlaunchConfig>, f: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void) twin cuLaunchKernelEx_ptsz;
            "cuLaunchCooperativeKernel" 9000 submit launch::kernel(stream) fn cuLaunchCooperativeKernel(f: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, params: *mut *mut c_void) twin cuLaunchCooperativeKernel_ptsz;
            /// counted and locked on each of its devices, all at once
            "cuLaunchCooperativeKernelMultiDevice" 9000 call multi_device::launch(list, count) fn cuLaunchCooperativeKernelMultiDevice(list: In<CUDA_LAUNCH_PARAMS>, count: u32, flags: u32);
            /// counted and locked
            "cuLaunch" 2000 submit launch::kernel_now() fn cuLaunch(f: CUfunction);
            "cuLaunchGrid" 2000 submit launch::kernel_now() fn cuLaunchGrid(f: CUfunction, width: i32, height: i32);
            "cuLaunchGridAsync" 2000 submit launch::kernel(stream) fn cuLaunchGridAsync(f: CUfunction, width: i32, height: i32, stream: CUstream);
            /// counted and locked; charged: the memory that it needs beyond what the device keeps for graphs
            "cuGraphLaunch" 10000 submit launch::graph(graph, stream) fn cuGraphLaunch(graph: CUgraphExec, stream: CUstream) twin cuGraphLaunch_ptsz;

            // ---- asynchronous copies, memsets, prefetch: locked ----
            /// counted with its bytes, and locked
            "cuMemcpyAsync" 4000 submit transfer::bytes(stream, bytes) fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) twin cuMemcpyAsync_ptsz;
            "cuMemcpyPeerAsync" 4000 submit transfer::bytes(stream, bytes) fn cuMemcpyPeerAsync(dst: CUdeviceptr, dst_ctx: CUcontext, src: CUdeviceptr, src_ctx: CUcontext, bytes: usize, stream: CUstream) twin cuMemcpyPeerAsync_ptsz;
            "cuMemcpyHtoDAsync" 3020 submit transfer::bytes(stream, bytes) fn cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream) twin cuMemcpyHtoDAsync_v2_ptsz;
            /// counted with its bytes, and locked; a wait for the device where the driver waits for the copy
            "cuMemcpyDtoHAsync" 3020 submit transfer::to_host(stream, bytes) fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream) twin cuMemcpyDtoHAsync_v2_ptsz;
            "cuMemcpyDtoDAsync" 3020 submit transfer::bytes(stream, bytes) fn cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) twin cuMemcpyDtoDAsync_v2_ptsz;
            "cuMemcpyHtoAAsync" 3020 submit transfer::bytes(stream, bytes) fn cuMemcpyHtoAAsync_v2(dst: CUarray, offset: usize, src: *const c_void, bytes: usize, stream: CUstream) twin cuMemcpyHtoAAsync_v2_ptsz;
            "cuMemcpyAtoHAsync" 3020 submit transfer::to_host(stream, bytes) fn cuMemcpyAtoHAsync_v2(dst: *mut c_void, src: CUarray, offset: usize, bytes: usize, stream: CUstream) twin cuMemcpyAtoHAsync_v2_ptsz;
            /// counted with its bytes, and locked
            "cuMemcpy2DAsync" 3020 submit transfer::region(stream, copy) fn cuMemcpy2DAsync_v2(copy: In<CUDA_MEMCPY2D>, stream: CUstream) twin cuMemcpy2DAsync_v2_ptsz;
            "cuMemcpy3DAsync" 3020 submit transfer::region(stream, copy) fn cuMemcpy3DAsync_v2(copy: In<CUDA_MEMCPY3D>, stream: CUstream) twin cuMemcpy3DAsync_v2_ptsz;
            "cuMemcpy3DPeerAsync" 4000 submit transfer::region(stream, copy) fn cuMemcpy3DPeerAsync(copy: In<CUDA_MEMCPY3D_PEER>, stream: CUstream) twin cuMemcpy3DPeerAsync_ptsz;
            /// counted with its bytes, and locked
            "cuMemcpyBatchAsync" 12080 submit transfer::batch(stream, sizes, count) fn cuMemcpyBatchAsync(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: In<usize>, count: usize, attrs: *mut CUmemcpyAttributes, attr_index: *mut usize, attr_count: usize, fail_index: *mut usize, stream: CUstream) twin cuMemcpyBatchAsync_ptsz;
            "cuMemcpyBatchAsync" 13000 submit transfer::batch(stream, sizes, count) fn cuMemcpyBatchAsync_v2(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: In<usize>, count: usize, attrs: *mut CUmemcpyAttributes, attr_index: *mut usize, attr_count: usize, stream: CUstream) twin cuMemcpyBatchAsync_v2_ptsz;
            /// counted with its bytes, and locked
            "cuMemcpy3DBatchAsync" 12080 submit transfer::regions(stream, list, count) fn cuMemcpy3DBatchAsync(count: usize, list: In<CUDA_MEMCPY3D_BATCH_OP>, fail_index: *mut usize, flags: u64, stream: CUstream) twin cuMemcpy3DBatchAsync_ptsz;
            "cuMemcpy3DBatchAsync" 13000 submit transfer::regions(stream, list, count) fn cuMemcpy3DBatchAsync_v2(count: usize, list: In<CUDA_MEMCPY3D_BATCH_OP>, flags: u64, stream: CUstream) twin cuMemcpy3DBatchAsync_v2_ptsz;
            "cuMemcpyWithAttributesAsync" 13020 submit transfer::bytes(stream, bytes) fn cuMemcpyWithAttributesAsync(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, attrs: *mut CUmemcpyAttributes, stream: CUstream) twin cuMemcpyWithAttributesAsync_ptsz;
            /// counted with its bytes, and locked
            "cuFabricCpyBatchAsync" 13050 submit transfer::fabric(stream, list, count) fn cuFabricCpyBatchAsync(count: usize, list: In<CUDA_FABRIC_COPY_BATCH_OP>, flags: u64, stream: CUstream) twin cuFabricCpyBatchAsync_ptsz;
            "cuMemcpy3DWithAttributesAsync" 13020 submit transfer::region(stream, copy) fn cuMemcpy3DWithAttributesAsync(copy: In<CUDA_MEMCPY3D_BATCH_OP>, flags: u64, stream: CUstream) twin cuMemcpy3DWithAttributesAsync_ptsz;
            /// counted with its bytes, and locked
            "cuMemBatchDecompressAsync" 12060 submit transfer::decompressed(stream, list, count) fn cuMemBatchDecompressAsync(list: In<CUmemDecompressParams>, count: usize, flags: u32, error_index: *mut usize, stream: CUstream) twin cuMemBatchDecompressAsync_ptsz;
            "cuMemPrefetchAsync" 8000 submit transfer::bytes(stream, bytes) fn cuMemPrefetchAsync(ptr: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) twin cuMemPrefetchAsync_ptsz;
            "cuMemPrefetchAsync" 12020 submit transfer::bytes(stream, bytes) fn cuMemPrefetchAsync_v2(ptr: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: u32, stream: CUstream) twin cuMemPrefetchAsync_v2_ptsz;
            "cuMemPrefetchBatchAsync" 13000 submit transfer::batch(stream, sizes, count) fn cuMemPrefetchBatchAsync(ptrs: *mut CUdeviceptr, sizes: In<usize>, count: usize, locations: *mut CUmemLocation, location_index: *mut usize, location_count: usize, flags: u64, stream: CUstream) twin cuMemPrefetchBatchAsync_ptsz;
            /// counted with its bytes, and locked
            "cuMemDiscardBatchAsync" 13000 submit transfer::discarded(stream, count) fn cuMemDiscardBatchAsync(ptrs: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, stream: CUstream) twin cuMemDiscardBatchAsync_ptsz;
            "cuMemDiscardAndPrefetchBatchAsync" 13000 submit transfer::batch(stream, sizes, count) fn cuMemDiscardAndPrefetchBatchAsync(ptrs: *mut CUdeviceptr, sizes: In<usize>, count: usize, locations: *mut CUmemLocation, location_index: *mut usize, location_count: usize, flags: u64, stream: CUstream) twin cuMemDiscardAndPrefetchBatchAsync_ptsz;
            /// counted and locked
            "cuMemsetD8" 3020 submit launch::memset_now() fn cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize) twin cuMemsetD8_v2_ptds;
            "cuMemsetD16" 3020 submit launch::memset_now() fn cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize) twin cuMemsetD16_v2_ptds;
            "cuMemsetD32" 3020 submit launch::memset_now() fn cuMemsetD32_v2(dst: CUdeviceptr, value: u32, count: usize) twin cuMemsetD32_v2_ptds;
            "cuMemsetD2D8" 3020 submit launch::memset_now() fn cuMemsetD2D8_v2(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) twin cuMemsetD2D8_v2_ptds;
            "cuMemsetD2D16" 3020 submit launch::memset_now() fn cuMemsetD2D16_v2(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) twin cuMemsetD2D16_v2_ptds;
            "cuMemsetD2D32" 3020 submit launch::memset_now() fn cuMemsetD2D32_v2(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) twin cuMemsetD2D32_v2_ptds;
            /// counted and locked
            "cuMemsetD8Async" 3020 submit launch::memset(stream) fn cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream) twin cuMemsetD8Async_ptsz;
            "cuMemsetD16Async" 3020 submit launch::memset(stream) fn cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream) twin cuMemsetD16Async_ptsz;
            "cuMemsetD32Async" 3020 submit launch::memset(stream) fn cuMemsetD32Async(dst: CUdeviceptr, value: u32, count: usize, stream: CUstream) twin cuMemsetD32Async_ptsz;
            "cuMemsetD2D8Async" 3020 submit launch::memset(stream) fn cuMemsetD2D8Async(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream) twin cuMemsetD2D8Async_ptsz;
            "cuMemsetD2D16Async" 3020 submit launch::memset(stream) fn cuMemsetD2D16Async(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream) twin cuMemsetD2D16Async_ptsz;
            "cuMemsetD2D32Async" 3020 submit launch::memset(stream) fn cuMemsetD2D32Async(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream) twin cuMemsetD2D32Async_ptsz;

            // ---- functions from before CUDA 3.2: addresses and sizes of 32 bits ----
            "cuMemcpyHtoD" 2000 call copy::bytes(bytes) fn cuMemcpyHtoD(dst: u32, src: *const c_void, bytes: u32);
            "cuMemcpyDtoH" 2000 call copy::to_host(bytes) fn cuMemcpyDtoH(dst: *mut c_void, src: u32, bytes: u32);
            "cuMemcpyDtoD" 2000 call copy::bytes(bytes) fn cuMemcpyDtoD(dst: u32, src: u32, bytes: u32);
            "cuMemcpyDtoA" 2000 call copy::bytes(bytes) fn cuMemcpyDtoA(dst: CUarray, offset: u32, src: u32, bytes: u32);
            "cuMemcpyAtoD" 2000 call copy::bytes(bytes) fn cuMemcpyAtoD(dst: u32, src: CUarray, offset: u32, bytes: u32);
            "cuMemcpyHtoA" 2000 call copy::bytes(bytes) fn cuMemcpyHtoA(dst: CUarray, offset: u32, src: *const c_void, bytes: u32);
            "cuMemcpyAtoH" 2000 call copy::to_host(bytes) fn cuMemcpyAtoH(dst: *mut c_void, src: CUarray, offset: u32, bytes: u32);
            "cuMemcpyAtoA" 2000 call copy::bytes(bytes) fn cuMemcpyAtoA(dst: CUarray, dst_offset: u32, src: CUarray, src_offset: u32, bytes: u32);
            "cuMemcpy2D" 2000 call copy::region(copy) fn cuMemcpy2D(copy: In<CUDA_MEMCPY2D_v1>);
            "cuMemcpy2DUnaligned" 2000 call copy::region(copy) fn cuMemcpy2DUnaligned(copy: In<CUDA_MEMCPY2D_v1>);
            "cuMemcpy3D" 2000 call copy::region(copy) fn cuMemcpy3D(copy: In<CUDA_MEMCPY3D_v1>);
            "cuMemcpyHtoDAsync" 2000 submit transfer::bytes(stream, bytes) fn cuMemcpyHtoDAsync(dst: u32, src: *const c_void, bytes: u32, stream: CUstream);
            "cuMemcpyDtoHAsync" 2000 submit transfer::to_host(stream, bytes) fn cuMemcpyDtoHAsync(dst: *mut c_void, src: u32, bytes: u32, stream: CUstream);
            "cuMemcpyDtoDAsync" 3000 submit transfer::bytes(stream, bytes) fn cuMemcpyDtoDAsync(dst: u32, src: u32, bytes: u32, stream: CUstream);
            "cuMemcpyHtoAAsync" 2000 submit transfer::bytes(stream, bytes) fn cuMemcpyHtoAAsync(dst: CUarray, offset: u32, src: *const c_void, bytes: u32, stream: CUstream);
            "cuMemcpyAtoHAsync" 2000 submit transfer::to_host(stream, bytes) fn cuMemcpyAtoHAsync(dst: *mut c_void, src: CUarray, offset: u32, bytes: u32, stream: CUstream);
            "cuMemcpy2DAsync" 2000 submit transfer::region(stream, copy) fn cuMemcpy2DAsync(copy: In<CUDA_MEMCPY2D_v1>, stream: CUstream);
            "cuMemcpy3DAsync" 2000 submit transfer::region(stream, copy) fn cuMemcpy3DAsync(copy: In<CUDA_MEMCPY3D_v1>, stream: CUstream);
            "cuMemsetD8" 2000 submit launch::memset_now() fn cuMemsetD8(dst: u32, value: u8, count: u32);
            "cuMemsetD16" 2000 submit launch::memset_now() fn cuMemsetD16(dst: u32, value: u16, count: u32);
            "cuMemsetD32" 2000 submit launch::memset_now() fn cuMemsetD32(dst: u32, value: u32, count: u32);
            "cuMemsetD2D8" 2000 submit launch::memset_now() fn cuMemsetD2D8(dst: u32, pitch: u32, value: u8, width: u32, height: u32);
            "cuMemsetD2D16" 2000 submit launch::memset_now() fn cuMemsetD2D16(dst: u32, pitch: u32, value: u16, width: u32, height: u32);
            "cuMemsetD2D32" 2000 submit launch::memset_now() fn cuMemsetD2D32(dst: u32, pitch: u32, value: u32, width: u32, height: u32);
        } used {
            fn cuCheckpointProcessGetState(pid: i32, state: Out<u32>);
            fn cuCheckpointProcessCheckpoint(pid: i32, args: *mut c_void);
            fn cuCheckpointProcessRestore(pid: i32, args: *mut c_void);
            fn cuDeviceGetCount(count: Out<i32>);
            fn cuDeviceGet(device: Out<CUdevice>, ordinal: i32);
            fn cuDeviceGetName(name: *mut c_char, len: i32, device: CUdevice);
            fn cuDeviceGetUuid(uuid: Out<CUuuid>, device: CUdevice);
            fn cuDeviceGetUuid_v2(uuid: Out<CUuuid>, device: CUdevice);
            fn cuDeviceGetAttribute(value: Out<i32>, attribute: CUdevice_attribute, device: CUdevice);
            fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<u32>, active: Out<i32>);
            fn cuCtxGetCurrent(ctx: Out<CUcontext>);
            fn cuCtxGetDevice(device: Out<CUdevice>);
            fn cuCtxGetLimit(value: Out<usize>, limit: u32);
            fn cuStreamQuery(stream: CUstream);
            fn cuStreamGetCtx(stream: CUstream, ctx: Out<CUcontext>);
            fn cuStreamGetGreenCtx(stream: CUstream, green: Out<CUgreenCtx>);
            fn cuCtxFromGreenCtx(ctx: Out<CUcontext>, green: CUgreenCtx);
            fn cuStreamIsCapturing(stream: CUstream, status: Out<CUstreamCaptureStatus>);
            fn cuStreamIsCapturing_ptsz(stream: CUstream, status: Out<CUstreamCaptureStatus>);
            fn cuThreadExchangeStreamCaptureMode(mode: Out<CUstreamCaptureMode>);
            fn cuEventRecord(event: CUevent, stream: CUstream);
            fn cuEventQuery(event: CUevent);
        } }
    };
}
