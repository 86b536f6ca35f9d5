//! The one table of driver functions.
//!
//! `driver_table!(with)` hands every row to the macro `with!`, as
//!
//! ```text
//! hooked {
//!     "cuMemAlloc" 3020 call memory::alloc fn cuMemAlloc_v2(dptr: Out<CUdeviceptr>, bytes: usize);
//!     "cuLaunchKernel" 4000 fast launch::kernel fn cuLaunchKernel(f: CUfunction, …) twin cuLaunchKernel_ptsz;
//! }
//! used { fn cuStreamQuery(stream: CUstream) twin cuStreamQuery_ptsz; }
//! ```
//!
//! * the base name and the version are what a caller passes to `cuGetProcAddress`: the first CUDA
//!   version (`major * 1000 + minor * 10`) whose answer is this function;
//! * `call` rows run inside the re-entrancy guard and the panic boundary; `submit` rows are the launch
//!   path, which brings its own; the `fast` row is a submission with its own assembly where there is one;
//! * the path is the hook, seen from `shim/src/entry.rs`; the name after `fn` is the exported symbol;
//! * `twin` is the per-thread default stream form (`_ptsz`, `_ptds`) with the same signature and hook;
//! * `used` rows are functions we call and do not hook.
//!
//! The rows that have to do with memory are in `table/memory.rs`, those of NVML in `table/nvml.rs`.

mod memory;
mod nvml;

/// Hands every row of the table to the macro `$with!`; see the module's docs for their form.
#[macro_export]
macro_rules! driver_table {
    ($with:ident) => {
        $crate::memory_rows! { $with hooked {
            // ---- start, and how functions are found ----
            "cuInit" 2000 call life::init fn cuInit(flags: u32);
            "cuGetProcAddress" 11030 call lookup::proc_address fn cuGetProcAddress(name: *const c_char, pfn: Out<*mut c_void>, version: i32, flags: u64);
            "cuGetProcAddress" 12000 call lookup::proc_address_v2 fn cuGetProcAddress_v2(name: *const c_char, pfn: Out<*mut c_void>, version: i32, flags: u64, status: Out<u32>);

            // ---- contexts ----
            "cuCtxCreate" 3020 call context::create fn cuCtxCreate_v2(ctx: Out<CUcontext>, flags: u32, device: CUdevice);
            "cuCtxCreate" 11040 call context::create_v3 fn cuCtxCreate_v3(ctx: Out<CUcontext>, affinity: *mut CUexecAffinityParam, count: i32, flags: u32, device: CUdevice);
            "cuCtxCreate" 12050 call context::create_v4 fn cuCtxCreate_v4(ctx: Out<CUcontext>, params: *mut CUctxCreateParams, flags: u32, device: CUdevice);
            "cuCtxDestroy" 4000 call context::destroy fn cuCtxDestroy_v2(ctx: CUcontext);
            "cuCtxDetach" 2000 call context::detach fn cuCtxDetach(ctx: CUcontext);
            "cuCtxSetCurrent" 4000 call context::set_current fn cuCtxSetCurrent(ctx: CUcontext);
            "cuCtxPushCurrent" 4000 call context::set_current fn cuCtxPushCurrent_v2(ctx: CUcontext);
            "cuCtxPopCurrent" 4000 call context::pop_current fn cuCtxPopCurrent_v2(ctx: Out<CUcontext>);
            "cuDevicePrimaryCtxRelease" 7000 call context::primary_release fn cuDevicePrimaryCtxRelease(device: CUdevice);
            "cuDevicePrimaryCtxRelease" 11000 call context::primary_release fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
            "cuDevicePrimaryCtxReset" 7000 call context::primary_reset fn cuDevicePrimaryCtxReset(device: CUdevice);
            "cuDevicePrimaryCtxReset" 11000 call context::primary_reset fn cuDevicePrimaryCtxReset_v2(device: CUdevice);

            // ---- streams ----
            "cuStreamDestroy" 4000 call stream::destroy fn cuStreamDestroy_v2(stream: CUstream);
            "cuStreamBeginCapture" 10000 call stream::begin_capture fn cuStreamBeginCapture(stream: CUstream) twin cuStreamBeginCapture_ptsz;
            "cuStreamBeginCapture" 10010 call stream::begin_capture_v2 fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) twin cuStreamBeginCapture_v2_ptsz;
            "cuStreamBeginCaptureToGraph" 12030 call stream::begin_capture_to_graph fn cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode) twin cuStreamBeginCaptureToGraph_ptsz;


            // ---- explicit synchronisations: release points ----
            "cuCtxSynchronize" 2000 call sync::context fn cuCtxSynchronize();
            "cuCtxSynchronize" 13000 call sync::context_v2 fn cuCtxSynchronize_v2(ctx: CUcontext);
            "cuStreamSynchronize" 2000 call sync::stream fn cuStreamSynchronize(stream: CUstream) twin cuStreamSynchronize_ptsz;
            "cuEventSynchronize" 2000 call sync::event fn cuEventSynchronize(event: CUevent);

            // ---- synchronous copies: release points ----
            "cuMemcpy" 4000 call copy::linear fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) twin cuMemcpy_ptds;
            "cuMemcpyPeer" 4000 call copy::peer fn cuMemcpyPeer(dst: CUdeviceptr, dst_ctx: CUcontext, src: CUdeviceptr, src_ctx: CUcontext, bytes: usize) twin cuMemcpyPeer_ptds;
            "cuMemcpyHtoD" 3020 call copy::host_to_device fn cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize) twin cuMemcpyHtoD_v2_ptds;
            "cuMemcpyDtoH" 3020 call copy::device_to_host fn cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize) twin cuMemcpyDtoH_v2_ptds;
            "cuMemcpyDtoD" 3020 call copy::linear fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize) twin cuMemcpyDtoD_v2_ptds;
            "cuMemcpyDtoA" 3020 call copy::device_to_array fn cuMemcpyDtoA_v2(dst: CUarray, offset: usize, src: CUdeviceptr, bytes: usize) twin cuMemcpyDtoA_v2_ptds;
            "cuMemcpyAtoD" 3020 call copy::array_to_device fn cuMemcpyAtoD_v2(dst: CUdeviceptr, src: CUarray, offset: usize, bytes: usize) twin cuMemcpyAtoD_v2_ptds;
            "cuMemcpyHtoA" 3020 call copy::host_to_array fn cuMemcpyHtoA_v2(dst: CUarray, offset: usize, src: *const c_void, bytes: usize) twin cuMemcpyHtoA_v2_ptds;
            "cuMemcpyAtoH" 3020 call copy::array_to_host fn cuMemcpyAtoH_v2(dst: *mut c_void, src: CUarray, offset: usize, bytes: usize) twin cuMemcpyAtoH_v2_ptds;
            "cuMemcpyAtoA" 3020 call copy::array_to_array fn cuMemcpyAtoA_v2(dst: CUarray, dst_offset: usize, src: CUarray, src_offset: usize, bytes: usize) twin cuMemcpyAtoA_v2_ptds;
            "cuMemcpy2D" 3020 call copy::rectangle fn cuMemcpy2D_v2(copy: In<CUDA_MEMCPY2D>) twin cuMemcpy2D_v2_ptds;
            "cuMemcpy2DUnaligned" 3020 call copy::rectangle fn cuMemcpy2DUnaligned_v2(copy: In<CUDA_MEMCPY2D>) twin cuMemcpy2DUnaligned_v2_ptds;
            "cuMemcpy3D" 3020 call copy::block fn cuMemcpy3D_v2(copy: In<CUDA_MEMCPY3D>) twin cuMemcpy3D_v2_ptds;
            "cuMemcpy3DPeer" 4000 call copy::block_peer fn cuMemcpy3DPeer(copy: In<CUDA_MEMCPY3D_PEER>) twin cuMemcpy3DPeer_ptds;

            // ---- kernels and graphs: locked ----
            "cuLaunchKernel" 4000 fast launch::kernel fn cuLaunchKernel(f: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) twin cuLaunchKernel_ptsz;
            "cuLaunchKernelEx" 11060 submit launch::kernel_ex fn cuLaunchKernelEx(config: In<CUlaunchConfig>, f: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void) twin cuLaunchKernelEx_ptsz;
            "cuLaunchCooperativeKernel" 9000 submit launch::cooperative fn cuLaunchCooperativeKernel(f: CUfunction, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: CUstream, params: *mut *mut c_void) twin cuLaunchCooperativeKernel_ptsz;
            "cuLaunchCooperativeKernelMultiDevice" 9000 submit launch::cooperative_multi fn cuLaunchCooperativeKernelMultiDevice(list: In<CUDA_LAUNCH_PARAMS>, count: u32, flags: u32);
            "cuLaunch" 2000 submit launch::legacy fn cuLaunch(f: CUfunction);
            "cuLaunchGrid" 2000 submit launch::legacy_grid fn cuLaunchGrid(f: CUfunction, width: i32, height: i32);
            "cuLaunchGridAsync" 2000 submit launch::legacy_grid_async fn cuLaunchGridAsync(f: CUfunction, width: i32, height: i32, stream: CUstream);
            "cuGraphLaunch" 10000 submit launch::graph fn cuGraphLaunch(graph: CUgraphExec, stream: CUstream) twin cuGraphLaunch_ptsz;

            // ---- asynchronous copies, memsets, prefetch: locked ----
            "cuMemcpyAsync" 4000 submit transfer::linear fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) twin cuMemcpyAsync_ptsz;
            "cuMemcpyPeerAsync" 4000 submit transfer::peer fn cuMemcpyPeerAsync(dst: CUdeviceptr, dst_ctx: CUcontext, src: CUdeviceptr, src_ctx: CUcontext, bytes: usize, stream: CUstream) twin cuMemcpyPeerAsync_ptsz;
            "cuMemcpyHtoDAsync" 3020 submit transfer::host_to_device fn cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream) twin cuMemcpyHtoDAsync_v2_ptsz;
            "cuMemcpyDtoHAsync" 3020 submit transfer::device_to_host fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream) twin cuMemcpyDtoHAsync_v2_ptsz;
            "cuMemcpyDtoDAsync" 3020 submit transfer::linear fn cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream) twin cuMemcpyDtoDAsync_v2_ptsz;
            "cuMemcpyHtoAAsync" 3020 submit transfer::host_to_array fn cuMemcpyHtoAAsync_v2(dst: CUarray, offset: usize, src: *const c_void, bytes: usize, stream: CUstream) twin cuMemcpyHtoAAsync_v2_ptsz;
            "cuMemcpyAtoHAsync" 3020 submit transfer::array_to_host fn cuMemcpyAtoHAsync_v2(dst: *mut c_void, src: CUarray, offset: usize, bytes: usize, stream: CUstream) twin cuMemcpyAtoHAsync_v2_ptsz;
            "cuMemcpy2DAsync" 3020 submit transfer::rectangle fn cuMemcpy2DAsync_v2(copy: In<CUDA_MEMCPY2D>, stream: CUstream) twin cuMemcpy2DAsync_v2_ptsz;
            "cuMemcpy3DAsync" 3020 submit transfer::block fn cuMemcpy3DAsync_v2(copy: In<CUDA_MEMCPY3D>, stream: CUstream) twin cuMemcpy3DAsync_v2_ptsz;
            "cuMemcpy3DPeerAsync" 4000 submit transfer::block_peer fn cuMemcpy3DPeerAsync(copy: In<CUDA_MEMCPY3D_PEER>, stream: CUstream) twin cuMemcpy3DPeerAsync_ptsz;
            "cuMemcpyBatchAsync" 12080 submit transfer::batch fn cuMemcpyBatchAsync(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: In<usize>, count: usize, attrs: *mut CUmemcpyAttributes, attr_index: *mut usize, attr_count: usize, fail_index: *mut usize, stream: CUstream) twin cuMemcpyBatchAsync_ptsz;
            "cuMemcpyBatchAsync" 13000 submit transfer::batch_v2 fn cuMemcpyBatchAsync_v2(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: In<usize>, count: usize, attrs: *mut CUmemcpyAttributes, attr_index: *mut usize, attr_count: usize, stream: CUstream) twin cuMemcpyBatchAsync_v2_ptsz;
            "cuMemPrefetchAsync" 8000 submit transfer::prefetch fn cuMemPrefetchAsync(ptr: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream) twin cuMemPrefetchAsync_ptsz;
            "cuMemPrefetchAsync" 12020 submit transfer::prefetch_v2 fn cuMemPrefetchAsync_v2(ptr: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: u32, stream: CUstream) twin cuMemPrefetchAsync_v2_ptsz;
            "cuMemsetD8" 3020 submit memset::d8 fn cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize) twin cuMemsetD8_v2_ptds;
            "cuMemsetD16" 3020 submit memset::d16 fn cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize) twin cuMemsetD16_v2_ptds;
            "cuMemsetD32" 3020 submit memset::d32 fn cuMemsetD32_v2(dst: CUdeviceptr, value: u32, count: usize) twin cuMemsetD32_v2_ptds;
            "cuMemsetD2D8" 3020 submit memset::rows8 fn cuMemsetD2D8_v2(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize) twin cuMemsetD2D8_v2_ptds;
            "cuMemsetD2D16" 3020 submit memset::rows16 fn cuMemsetD2D16_v2(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize) twin cuMemsetD2D16_v2_ptds;
            "cuMemsetD2D32" 3020 submit memset::rows32 fn cuMemsetD2D32_v2(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize) twin cuMemsetD2D32_v2_ptds;
            "cuMemsetD8Async" 3020 submit memset::d8_async fn cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream) twin cuMemsetD8Async_ptsz;
            "cuMemsetD16Async" 3020 submit memset::d16_async fn cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream) twin cuMemsetD16Async_ptsz;
            "cuMemsetD32Async" 3020 submit memset::d32_async fn cuMemsetD32Async(dst: CUdeviceptr, value: u32, count: usize, stream: CUstream) twin cuMemsetD32Async_ptsz;
            "cuMemsetD2D8Async" 3020 submit memset::rows8_async fn cuMemsetD2D8Async(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream) twin cuMemsetD2D8Async_ptsz;
            "cuMemsetD2D16Async" 3020 submit memset::rows16_async fn cuMemsetD2D16Async(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream) twin cuMemsetD2D16Async_ptsz;
            "cuMemsetD2D32Async" 3020 submit memset::rows32_async fn cuMemsetD2D32Async(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream) twin cuMemsetD2D32Async_ptsz;
        } used {
            fn cuDeviceGetCount(count: Out<i32>);
            fn cuDeviceGet(device: Out<CUdevice>, ordinal: i32);
            fn cuDeviceGetName(name: *mut c_char, len: i32, device: CUdevice);
            fn cuDeviceGetUuid(uuid: Out<CUuuid>, device: CUdevice);
            fn cuDeviceGetUuid_v2(uuid: Out<CUuuid>, device: CUdevice);
            fn cuDeviceGetAttribute(value: Out<i32>, attribute: CUdevice_attribute, device: CUdevice);
            fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<u32>, active: Out<i32>);
            fn cuCtxGetCurrent(ctx: Out<CUcontext>);
            fn cuCtxGetDevice(device: Out<CUdevice>);
            fn cuStreamQuery(stream: CUstream);
            fn cuStreamIsCapturing(stream: CUstream, status: Out<CUstreamCaptureStatus>);
            fn cuStreamIsCapturing_ptsz(stream: CUstream, status: Out<CUstreamCaptureStatus>);
            fn cuThreadExchangeStreamCaptureMode(mode: Out<CUstreamCaptureMode>);
            fn cuEventCreate(event: Out<CUevent>, flags: u32);
            fn cuEventRecord(event: CUevent, stream: CUstream);
            fn cuEventQuery(event: CUevent);
            fn cuEventDestroy_v2(event: CUevent);
        } }
    };
}
