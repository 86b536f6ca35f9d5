//! The rows for memory: allocations, frees, pools, arrays, mappings, and the driver's reports of its memory.

/// Adds the memory rows and passes all on to [`nvml_rows!`](crate::nvml_rows).
#[doc(hidden)]
#[macro_export]
macro_rules! memory_rows {
    ($with:ident hooked { $($hooked:tt)* } used { $($used:tt)* }) => {
        $crate::nvml_rows! { $with hooked { $($hooked)*
            // ---- ownership of memory ----
            /// records the context whose memory a reset frees
            "cuDevicePrimaryCtxRetain" 7000 call memory::primary_retain fn cuDevicePrimaryCtxRetain(ctx: Out<CUcontext>, device: CUdevice);

            // ---- code and other memory of the driver's own, in no account ----
            /// if the driver has no memory for it: waits where an allocation would wait for a full device, and is called again
            "cuModuleLoad" 2000 call memory::code::load() fn cuModuleLoad(module: Out<CUmodule>, path: *const c_char);
            "cuModuleLoadData" 2000 call memory::code::load() fn cuModuleLoadData(module: Out<CUmodule>, image: *const c_void);
            "cuModuleLoadDataEx" 2010 call memory::code::load() fn cuModuleLoadDataEx(module: Out<CUmodule>, image: *const c_void, count: u32, options: *mut u32, values: *mut *mut c_void);
            "cuModuleLoadFatBinary" 2000 call memory::code::load() fn cuModuleLoadFatBinary(module: Out<CUmodule>, image: *const c_void);
            "cuModuleGetFunction" 2000 call memory::code::load() fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: *const c_char);
            "cuModuleGetGlobal" 2000 call memory::code::load() fn cuModuleGetGlobal(dptr: Out<u32>, bytes: Out<u32>, module: CUmodule, name: *const c_char);
            "cuModuleGetGlobal" 3020 call memory::code::load() fn cuModuleGetGlobal_v2(dptr: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: *const c_char);
            "cuLibraryLoadData" 12000 call memory::code::load() fn cuLibraryLoadData(library: Out<CUlibrary>, image: *const c_void, jit: *mut u32, jit_values: *mut *mut c_void, jit_count: u32, options: *mut u32, values: *mut *mut c_void, count: u32);
            "cuLibraryLoadFromFile" 12000 call memory::code::load() fn cuLibraryLoadFromFile(library: Out<CUlibrary>, path: *const c_char, jit: *mut u32, jit_values: *mut *mut c_void, jit_count: u32, options: *mut u32, values: *mut *mut c_void, count: u32);
            "cuLibraryGetKernel" 12000 call memory::code::load() fn cuLibraryGetKernel(kernel: Out<CUkernel>, library: CUlibrary, name: *const c_char);
            "cuLibraryGetModule" 12000 call memory::code::load() fn cuLibraryGetModule(module: Out<CUmodule>, library: CUlibrary);
            "cuLibraryGetGlobal" 12000 call memory::code::load() fn cuLibraryGetGlobal(dptr: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: *const c_char);
            "cuLibraryGetManaged" 12000 call memory::code::load() fn cuLibraryGetManaged(dptr: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: *const c_char);
            "cuKernelGetFunction" 12000 call memory::code::load() fn cuKernelGetFunction(function: Out<CUfunction>, kernel: CUkernel);
            "cuKernelGetAttribute" 12000 query memory::code::load() fn cuKernelGetAttribute(value: Out<i32>, attribute: u32, kernel: CUkernel, device: CUdevice);
            "cuKernelSetAttribute" 12000 call memory::code::load() fn cuKernelSetAttribute(attribute: u32, value: i32, kernel: CUkernel, device: CUdevice);
            "cuFuncGetAttribute" 2020 query memory::code::load() fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: CUfunction);
            "cuFuncSetAttribute" 9000 call memory::code::load() fn cuFuncSetAttribute(function: CUfunction, attribute: u32, value: i32);
            "cuFuncSetCacheConfig" 3000 call memory::code::load() fn cuFuncSetCacheConfig(function: CUfunction, config: i32);
            "cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050 call memory::code::load() fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, function: CUfunction, size: i32, shared: usize);
            "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000 call memory::code::load() fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: Out<i32>, function: CUfunction, size: i32, shared: usize, flags: u32);
            "cuOccupancyMaxPotentialClusterSize" 11070 call memory::code::load() fn cuOccupancyMaxPotentialClusterSize(size: Out<i32>, function: CUfunction, config: In<CUlaunchConfig>);
            "cuOccupancyMaxActiveClusters" 11070 call memory::code::load() fn cuOccupancyMaxActiveClusters(clusters: Out<i32>, function: CUfunction, config: In<CUlaunchConfig>);
            "cuFuncLoad" 12040 call memory::code::load() fn cuFuncLoad(function: CUfunction);
            "cuMemSetAccess" 10020 call memory::code::load() fn cuMemSetAccess(ptr: CUdeviceptr, bytes: usize, list: In<CUmemAccessDesc>, count: usize);

            // ---- linear memory ----
            /// charged to the current device: the requested bytes
            "cuMemAlloc" 2000 call memory::linear::alloc fn cuMemAlloc(dptr: Out<u32>, bytes: u32);
            "cuMemAlloc" 3020 call memory::linear::alloc fn cuMemAlloc_v2(dptr: Out<CUdeviceptr>, bytes: usize);
            /// charged: the driver's pitch × height
            "cuMemAllocPitch" 2000 call memory::linear::alloc_pitch(dptr, pitch, width, height) fn cuMemAllocPitch(dptr: Out<u32>, pitch: Out<u32>, width: u32, height: u32, element: u32);
            "cuMemAllocPitch" 3020 call memory::linear::alloc_pitch(dptr, pitch, width, height) fn cuMemAllocPitch_v2(dptr: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: u32);
            /// charged to the current device, its first location; the process can no longer be evicted
            "cuMemAllocManaged" 6000 call memory::linear::alloc_managed(dptr, bytes) fn cuMemAllocManaged(dptr: Out<CUdeviceptr>, bytes: usize, flags: u32);
            /// releases the charge
            "cuMemFree" 2000 call memory::linear::free fn cuMemFree(dptr: u32);
            "cuMemFree" 3020 call memory::linear::free fn cuMemFree_v2(dptr: CUdeviceptr);

            // ---- stream-ordered memory and its pools ----
            /// charged to the stream's device: the requested bytes; captured: with the graph's launches
            "cuMemAllocAsync" 11020 call memory::pool::alloc fn cuMemAllocAsync(dptr: Out<CUdeviceptr>, bytes: usize, stream: CUstream) twin cuMemAllocAsync_ptsz;
            /// charged to the pool's device, or counted as pinned: the requested bytes
            "cuMemAllocFromPoolAsync" 11020 call memory::pool::alloc_from fn cuMemAllocFromPoolAsync(dptr: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream) twin cuMemAllocFromPoolAsync_ptsz;
            /// releases the charge at the call, in program order; captured: by the graph's launches
            "cuMemFreeAsync" 11020 call memory::pool::free(dptr, stream) fn cuMemFreeAsync(dptr: CUdeviceptr, stream: CUstream) twin cuMemFreeAsync_ptsz;
            /// records the pool's device
            "cuMemPoolCreate" 11020 call memory::pool::create fn cuMemPoolCreate(pool: Out<CUmemoryPool>, props: In<CUmemPoolProps>);
            /// forgets the pool
            "cuMemPoolDestroy" 11020 call memory::pool::destroy fn cuMemPoolDestroy(pool: CUmemoryPool);
            /// records the pool's device
            "cuDeviceGetDefaultMemPool" 11020 call memory::pool::of_device fn cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, device: CUdevice);
            "cuDeviceGetMemPool" 11020 call memory::pool::of_device fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, device: CUdevice);
            /// records the pool's device
            "cuMemGetDefaultMemPool" 13000 call memory::pool::of_location fn cuMemGetDefaultMemPool(pool: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32);
            "cuMemGetMemPool" 13000 call memory::pool::of_location fn cuMemGetMemPool(pool: Out<CUmemoryPool>, location: In<CUmemLocation>, kind: u32);
            /// records the pool of the device's allocations
            "cuDeviceSetMemPool" 11020 call memory::pool::set_of_device fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool);
            /// records the pool of the device's allocations
            "cuMemSetMemPool" 13000 call memory::pool::set_of_location fn cuMemSetMemPool(location: In<CUmemLocation>, kind: u32, pool: CUmemoryPool);

            // ---- large allocations under --swappable: reported like cuMemAlloc's, and reachable by peers ----
            /// for swappable memory: returns the requested range, not that of the physical pieces
            "cuMemGetAddressRange" 3020 call memory::swappable::range fn cuMemGetAddressRange_v2(base: Out<CUdeviceptr>, size: Out<usize>, dptr: CUdeviceptr);
            /// for swappable memory: returns context and range as for memory of `cuMemAlloc`
            "cuPointerGetAttribute" 4000 call memory::swappable::attribute fn cuPointerGetAttribute(data: Out<u64>, attribute: u32, dptr: CUdeviceptr);
            /// for swappable memory: returns context and range as for memory of `cuMemAlloc`
            "cuPointerGetAttributes" 7000 call memory::swappable::attributes fn cuPointerGetAttributes(count: u32, attributes: In<u32>, data: In<Out<u64>>, dptr: CUdeviceptr);
            /// gives the peer access to swappable memory too
            "cuCtxEnablePeerAccess" 4000 call memory::swappable::enable_peer(peer) fn cuCtxEnablePeerAccess(peer: CUcontext, flags: u32);
            /// keeps memory that is exported as a descriptor on its device: no copies of what is swappable, no checkpoint of the process
            "cuMemGetHandleForAddressRange" 11070 call memory::swappable::show_range(dptr) fn cuMemGetHandleForAddressRange(handle: *mut c_void, dptr: CUdeviceptr, bytes: usize, kind: u32, flags: u64);

            // ---- physical memory and its mappings ----
            /// charged to its device; on the host counted as pinned
            "cuMemCreate" 10020 call memory::physical::create(handle, bytes, prop) fn cuMemCreate(handle: Out<CUmemGenericAllocationHandle>, bytes: usize, prop: In<CUmemAllocationProp>, flags: u64);
            /// releases the charge when no handle, mapping or binding is left
            "cuMemRelease" 10020 call memory::physical::release fn cuMemRelease(handle: CUmemGenericAllocationHandle);
            /// keeps the memory charged
            "cuMemMap" 10020 call memory::physical::map(ptr, bytes, handle) fn cuMemMap(ptr: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);
            /// releases the charge when no handle, mapping or binding is left
            "cuMemUnmap" 10020 call memory::physical::unmap fn cuMemUnmap(ptr: CUdeviceptr, bytes: usize);
            /// keeps the memory charged
            "cuMemRetainAllocationHandle" 11000 call memory::physical::retain fn cuMemRetainAllocationHandle(handle: Out<CUmemGenericAllocationHandle>, addr: *mut c_void);
            /// records the fabric handle, by which an import of the process's own memory is recognised; the process can no
            /// longer be evicted
            "cuMemExportToShareableHandle" 10020 call memory::physical::export(shareable, handle, kind) fn cuMemExportToShareableHandle(shareable: Out<FabricHandle>, handle: CUmemGenericAllocationHandle, kind: u32, flags: u64);
            /// the exporting process stays charged; mappings of another process's memory are counted as imported, and the
            /// process can no longer be evicted
            "cuMemImportFromShareableHandle" 10020 call memory::physical::import(handle, shareable, kind) fn cuMemImportFromShareableHandle(handle: Out<CUmemGenericAllocationHandle>, shareable: In<FabricHandle>, kind: u32);
            /// keeps the memory charged
            "cuMemMapArrayAsync" 11010 call memory::sparse::map(list, count) fn cuMemMapArrayAsync(list: In<CUarrayMapInfo>, count: u32, stream: CUstream) twin cuMemMapArrayAsync_ptsz;

            // ---- multicast objects ----
            /// charged nothing: the object has no memory of its own
            "cuMulticastCreate" 12010 call memory::multicast::create(team) fn cuMulticastCreate(team: Out<CUmemGenericAllocationHandle>, prop: In<CUmulticastObjectProp>);
            /// keeps the memory charged to its device
            "cuMulticastBindMem" 12010 call memory::multicast::bind(team, offset, memory, bytes) fn cuMulticastBindMem(team: CUmemGenericAllocationHandle, offset: usize, memory: CUmemGenericAllocationHandle, memory_offset: usize, bytes: usize, flags: u64);
            /// keeps the memory charged to its device
            "cuMulticastBindMem" 13010 call memory::multicast::bind_for(team, device, offset, memory, bytes) fn cuMulticastBindMem_v2(team: CUmemGenericAllocationHandle, device: CUdevice, offset: usize, memory: CUmemGenericAllocationHandle, memory_offset: usize, bytes: usize, flags: u64);
            /// keeps the memory charged to its device
            "cuMulticastBindAddr" 12010 call memory::multicast::bind_address(team, offset, address, bytes) fn cuMulticastBindAddr(team: CUmemGenericAllocationHandle, offset: usize, address: CUdeviceptr, bytes: usize, flags: u64);
            /// keeps the memory charged to its device
            "cuMulticastBindAddr" 13010 call memory::multicast::bind_address_for(team, device, offset, address, bytes) fn cuMulticastBindAddr_v2(team: CUmemGenericAllocationHandle, device: CUdevice, offset: usize, address: CUdeviceptr, bytes: usize, flags: u64);
            /// releases the charge when no handle, mapping or binding is left
            "cuMulticastUnbind" 12010 call memory::multicast::unbind(team, device, offset, bytes) fn cuMulticastUnbind(team: CUmemGenericAllocationHandle, device: CUdevice, offset: usize, bytes: usize);

            // ---- arrays ----
            /// charged: the bytes of its shape, all layers and faces; sparse and deferred: nothing
            "cuArrayCreate" 2000 call memory::array::create fn cuArrayCreate(array: Out<CUarray>, desc: In<CUDA_ARRAY_DESCRIPTOR_v1>);
            "cuArrayCreate" 3020 call memory::array::create fn cuArrayCreate_v2(array: Out<CUarray>, desc: In<CUDA_ARRAY_DESCRIPTOR>);
            "cuArray3DCreate" 2000 call memory::array::create fn cuArray3DCreate(array: Out<CUarray>, desc: In<CUDA_ARRAY3D_DESCRIPTOR_v1>);
            "cuArray3DCreate" 3020 call memory::array::create fn cuArray3DCreate_v2(array: Out<CUarray>, desc: In<CUDA_ARRAY3D_DESCRIPTOR>);
            /// releases the charge
            "cuArrayDestroy" 2000 call memory::array::destroy fn cuArrayDestroy(array: CUarray);
            /// charged: all levels
            "cuMipmappedArrayCreate" 5000 call memory::array::create_mipmapped fn cuMipmappedArrayCreate(array: Out<CUmipmappedArray>, desc: In<CUDA_ARRAY3D_DESCRIPTOR>, levels: u32);
            /// releases the charge
            "cuMipmappedArrayDestroy" 5000 call memory::array::destroy_mipmapped fn cuMipmappedArrayDestroy(array: CUmipmappedArray);

            // ---- pinned host memory: counted separately ----
            /// counted as pinned, against no quota
            "cuMemAllocHost" 2000 call memory::host::alloc fn cuMemAllocHost(ptr: Out<*mut c_void>, bytes: u32);
            "cuMemAllocHost" 3020 call memory::host::alloc fn cuMemAllocHost_v2(ptr: Out<*mut c_void>, bytes: usize);
            "cuMemHostAlloc" 2020 call memory::host::alloc(ptr, bytes) fn cuMemHostAlloc(ptr: Out<*mut c_void>, bytes: usize, flags: u32);
            /// subtracted
            "cuMemFreeHost" 2000 call memory::host::free fn cuMemFreeHost(ptr: *mut c_void);
            /// counted as pinned, against no quota
            "cuMemHostRegister" 4000 call memory::host::register(ptr, bytes) fn cuMemHostRegister(ptr: *mut c_void, bytes: usize, flags: u32);
            "cuMemHostRegister" 6050 call memory::host::register(ptr, bytes) fn cuMemHostRegister_v2(ptr: *mut c_void, bytes: usize, flags: u32);
            /// subtracted
            "cuMemHostUnregister" 4000 call memory::host::unregister fn cuMemHostUnregister(ptr: *mut c_void);

            // ---- exports to other processes: the process can no longer be evicted ----
            /// marks the process as not evictable, because other processes use its memory; the driver does not export swappable
            /// memory
            "cuIpcGetMemHandle" 4010 call memory::swappable::show(dptr) fn cuIpcGetMemHandle(handle: Out<CUipcMemHandle>, dptr: CUdeviceptr);
            /// marks the process as not evictable, because other processes use its objects
            "cuIpcGetEventHandle" 4010 call memory::import::shown() fn cuIpcGetEventHandle(handle: Out<CUipcEventHandle>, event: CUevent);
            "cuIpcOpenEventHandle" 4010 call memory::import::shown() fn cuIpcOpenEventHandle(event: Out<CUevent>, handle: CUipcEventHandle);
            "cuMemPoolExportToShareableHandle" 11020 call memory::import::shown() fn cuMemPoolExportToShareableHandle(handle: *mut c_void, pool: CUmemoryPool, kind: u32, flags: u64);
            "cuMemPoolExportPointer" 11020 call memory::import::shown() fn cuMemPoolExportPointer(data: Out<CUmemPoolPtrExportData>, dptr: CUdeviceptr);
            "cuLogicalEndpointExport" 13030 call memory::import::shown() fn cuLogicalEndpointExport(handle: *mut c_void, endpoint: u32, kind: u32);
            /// marks the process as not evictable, because it uses objects of another process
            "cuLogicalEndpointImport" 13030 call memory::import::taken() fn cuLogicalEndpointImport(endpoint: u32, handle: *const c_void, kind: u32);
            "cuMemPoolImportFromShareableHandle" 11020 call memory::import::taken() fn cuMemPoolImportFromShareableHandle(pool: Out<CUmemoryPool>, handle: *mut c_void, kind: u32, flags: u64);

            // ---- memory of another process or interface: shown, not charged ----
            /// counted as imported; the exporting process is charged
            "cuIpcOpenMemHandle" 4010 call memory::import::open(dptr) fn cuIpcOpenMemHandle(dptr: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: u32);
            "cuIpcOpenMemHandle" 11000 call memory::import::open(dptr) fn cuIpcOpenMemHandle_v2(dptr: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: u32);
            /// subtracted
            "cuIpcCloseMemHandle" 4010 call memory::import::close fn cuIpcCloseMemHandle(dptr: CUdeviceptr);
            /// counted as imported; the exporting process is charged
            "cuMemPoolImportPointer" 11020 call memory::import::pointer(dptr) fn cuMemPoolImportPointer(dptr: Out<CUdeviceptr>, pool: CUmemoryPool, data: In<CUmemPoolPtrExportData>);
            /// counted as imported
            "cuImportExternalMemory" 10000 call memory::import::external fn cuImportExternalMemory(memory: Out<CUexternalMemory>, desc: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>);
            /// subtracted
            "cuDestroyExternalMemory" 10000 call memory::import::destroy_external fn cuDestroyExternalMemory(memory: CUexternalMemory);

            // ---- memory that graphs allocate: charged from a launch until it is trimmed ----
            /// records the memory that each launch allocates
            "cuGraphAddMemAllocNode" 11040 call memory::graph::add_alloc(graph, params) fn cuGraphAddMemAllocNode(node: Out<CUgraphNode>, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>);
            /// records the memory that each launch allocates or frees; a moved child graph brings its nodes along
            "cuGraphAddNode" 12020 call memory::graph::add_node(graph, params) fn cuGraphAddNode(node: Out<CUgraphNode>, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: Out<CUgraphNodeParams>);
            "cuGraphAddNode" 12030 call memory::graph::add_node(graph, params) fn cuGraphAddNode_v2(node: Out<CUgraphNode>, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, params: Out<CUgraphNodeParams>);
            "cuGraphAddNode" 13040 call memory::graph::add_node(graph, params) fn cuGraphAddNode_v3(node: Out<CUgraphNode>, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, params: Out<CUgraphNodeParams>);
            /// records the memory that each launch frees
            "cuGraphAddMemFreeNode" 11040 call memory::graph::add_free(graph, dptr) fn cuGraphAddMemFreeNode(node: Out<CUgraphNode>, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, dptr: CUdeviceptr);
            /// forgets the graph; its memory stays charged until it is trimmed
            "cuGraphDestroy" 10000 call memory::graph::destroy fn cuGraphDestroy(graph: CUgraph);
            /// records the memory that launches need
            "cuGraphInstantiate" 10000 call memory::graph::instantiate(exec, graph) fn cuGraphInstantiate(exec: Out<CUgraphExec>, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, len: usize);
            "cuGraphInstantiate" 11000 call memory::graph::instantiate(exec, graph) fn cuGraphInstantiate_v2(exec: Out<CUgraphExec>, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, len: usize);
            "cuGraphInstantiateWithFlags" 11040 call memory::graph::instantiate(exec, graph) fn cuGraphInstantiateWithFlags(exec: Out<CUgraphExec>, graph: CUgraph, flags: u64);
            /// records the memory that launches need; charged, if it uploads
            "cuGraphInstantiateWithParams" 12000 call memory::graph::instantiate_with(exec, graph, params) fn cuGraphInstantiateWithParams(exec: Out<CUgraphExec>, graph: CUgraph, params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>) twin cuGraphInstantiateWithParams_ptsz;
            /// forgets the executable; its memory stays charged until it is trimmed
            "cuGraphExecDestroy" 10000 call memory::graph::destroy_exec fn cuGraphExecDestroy(exec: CUgraphExec);
            /// charged: the memory that a launch needs beyond what the device keeps for graphs
            "cuGraphUpload" 11010 call memory::graph::upload fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) twin cuGraphUpload_ptsz;
            /// releases the charge of memory that the device keeps for graphs and no allocation uses
            "cuDeviceGraphMemTrim" 11040 call memory::graph::trim fn cuDeviceGraphMemTrim(device: CUdevice);

            // ---- the driver's reports of its memory ----
            /// reports the quota as the device's memory
            "cuMemGetInfo" 2000 query memory::view::info fn cuMemGetInfo(free: Out<u32>, total: Out<u32>);
            "cuMemGetInfo" 3020 query memory::view::info fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>);
            /// reports the quota as the device's memory
            "cuDeviceTotalMem" 2000 query memory::view::device_total fn cuDeviceTotalMem(bytes: Out<u32>, device: CUdevice);
            "cuDeviceTotalMem" 3020 query memory::view::device_total fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: CUdevice);
        } used { $($used)*
            fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: u32, value: Out<u64>);
            fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
            fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: u32, value: Out<u64>);
            fn cuArray3DGetDescriptor_v2(desc: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray);
            fn cuMemAddressReserve(ptr: Out<CUdeviceptr>, bytes: usize, alignment: usize, wanted: CUdeviceptr, flags: u64);
            fn cuMemAddressFree(ptr: CUdeviceptr, bytes: usize);
            fn cuMemGetAllocationGranularity(bytes: Out<usize>, prop: In<CUmemAllocationProp>, option: u32);
            fn cuCtxRecordEvent(ctx: CUcontext, event: CUevent);
            fn cuStreamGetCaptureInfo_v2(stream: CUstream, status: Out<CUstreamCaptureStatus>, id: Out<u64>, graph: Out<CUgraph>, dependencies: *mut *const CUgraphNode, count: *mut usize);
            fn cuStreamGetCaptureInfo_v2_ptsz(stream: CUstream, status: Out<CUstreamCaptureStatus>, id: Out<u64>, graph: Out<CUgraph>, dependencies: *mut *const CUgraphNode, count: *mut usize);
        } }
    };
}
