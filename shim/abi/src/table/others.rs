//! The driver's functions without a row, by exported symbol: a program that is linked to the driver may call them.
//!
//! They are exported too, so that a call waits while the process is evicted (`shim/src/face/passthrough.rs`). A function that a
//! program looks up waits in any case, in this list or not.

/// Passes the names to the macro `$with!`, sorted. `NAME:VARIANT` is a query ([`Query`](crate::Query)); the others are requests.
#[macro_export]
macro_rules! other_functions {
    ($with:ident) => {
        $with! {
            cuArray3DGetDescriptor cuArray3DGetDescriptor_v2 cuArrayGetDescriptor cuArrayGetDescriptor_v2
            cuArrayGetMemoryRequirements cuArrayGetPlane cuArrayGetSparseProperties cuCheckpointOperationComplete
            cuCheckpointProcessCheckpoint cuCheckpointProcessGetRestoreThreadId cuCheckpointProcessGetState
            cuCheckpointProcessRestore cuCoredumpDeregisterCompleteCallback cuCoredumpDeregisterStartCallback
            cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal cuCoredumpRegisterCompleteCallback cuCoredumpRegisterStartCallback
            cuCoredumpSetAttribute cuCoredumpSetAttributeGlobal cuCtxDisablePeerAccess cuCtxFromGreenCtx
            cuCtxGetApiVersion:Answers cuCtxGetCacheConfig:Answers cuCtxGetCurrent:Answers cuCtxGetDevResource
            cuCtxGetDevice:Answers cuCtxGetDevice_v2:Answers cuCtxGetExecAffinity:Answers cuCtxGetFlags:Answers cuCtxGetId:Answers
            cuCtxGetLimit:Answers cuCtxGetSharedMemConfig:Answers cuCtxGetStreamPriorityRange:Answers cuCtxRecordEvent
            cuCtxResetPersistingL2Cache cuCtxSetCacheConfig cuCtxSetFlags cuCtxSetSharedMemConfig cuCtxWaitEvent
            cuDestroyExternalSemaphore cuDevResourceGenerateDesc cuDevSmResourceSplit cuDevSmResourceSplitByCount
            cuDeviceCanAccessPeer:Answers cuDeviceComputeCapability:Answers cuDeviceGet:Answers cuDeviceGetAttribute:Answers
            cuDeviceGetByPCIBusId:Answers cuDeviceGetCliqueCount cuDeviceGetCliqueInfo cuDeviceGetCount:Answers
            cuDeviceGetDevResource cuDeviceGetExecAffinitySupport:Answers cuDeviceGetFabricClusterUuid
            cuDeviceGetGraphMemAttribute:Waits cuDeviceGetHostAtomicCapabilities:Answers cuDeviceGetLuid:Answers
            cuDeviceGetName:Answers cuDeviceGetNvSciSyncAttributes cuDeviceGetP2PAtomicCapabilities:Answers
            cuDeviceGetP2PAttribute:Answers cuDeviceGetPCIBusId:Answers cuDeviceGetProperties:Answers
            cuDeviceGetTexture1DLinearMaxWidth:Answers cuDeviceGetUuid:Answers cuDeviceGetUuid_v2:Answers
            cuDevicePrimaryCtxGetState:Answers cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2
            cuDeviceRegisterAsyncNotification cuDeviceSetGraphMemAttribute cuDeviceUnregisterAsyncNotification
            cuEGLStreamConsumerAcquireFrame cuEGLStreamConsumerConnect cuEGLStreamConsumerConnectWithFlags
            cuEGLStreamConsumerDisconnect cuEGLStreamConsumerReleaseFrame cuEGLStreamProducerConnect cuEGLStreamProducerDisconnect
            cuEGLStreamProducerPresentFrame cuEGLStreamProducerReturnFrame cuEventCreateFromEGLSync cuEventElapsedTime:Waits
            cuEventElapsedTime_v2:Waits cuEventQuery:Event cuEventRecord cuEventRecordWithFlags cuEventRecordWithFlags_ptsz
            cuEventRecord_ptsz cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray cuFlushGPUDirectRDMAWrites
            cuFuncGetModule:Waits cuFuncGetName:Waits cuFuncGetParamCount:Waits cuFuncGetParamInfo:Waits cuFuncIsLoaded:Waits
            cuFuncSetBlockShape cuFuncSetSharedMemConfig cuFuncSetSharedSize cuGLCtxCreate cuGLCtxCreate_v2 cuGLGetDevices
            cuGLGetDevices_v2 cuGLInit cuGLMapBufferObject cuGLMapBufferObjectAsync cuGLMapBufferObjectAsync_v2
            cuGLMapBufferObjectAsync_v2_ptsz cuGLMapBufferObject_v2 cuGLMapBufferObject_v2_ptds cuGLRegisterBufferObject
            cuGLSetBufferObjectMapFlags cuGLUnmapBufferObject cuGLUnmapBufferObjectAsync cuGLUnregisterBufferObject
            cuGraphAddBatchMemOpNode cuGraphAddChildGraphNode cuGraphAddDependencies cuGraphAddDependencies_v2 cuGraphAddEmptyNode
            cuGraphAddEventRecordNode cuGraphAddEventWaitNode cuGraphAddExternalSemaphoresSignalNode
            cuGraphAddExternalSemaphoresWaitNode cuGraphAddHostNode cuGraphAddKernelNode cuGraphAddKernelNode_v2
            cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams
            cuGraphChildGraphNodeGetGraph cuGraphClone cuGraphConditionalHandleCreate cuGraphCreate cuGraphDebugDotPrint
            cuGraphDestroyNode cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent cuGraphEventWaitNodeGetEvent
            cuGraphEventWaitNodeSetEvent cuGraphExecBatchMemOpNodeSetParams cuGraphExecChildGraphNodeSetParams
            cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent cuGraphExecExternalSemaphoresSignalNodeSetParams
            cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphExecGetFlags cuGraphExecGetId cuGraphExecHostNodeSetParams
            cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2 cuGraphExecMemcpyNodeSetParams
            cuGraphExecMemsetNodeSetParams cuGraphExecNodeSetParams cuGraphExecUpdate cuGraphExecUpdate_v2
            cuGraphExternalSemaphoresSignalNodeGetParams cuGraphExternalSemaphoresSignalNodeSetParams
            cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams cuGraphGetEdges
            cuGraphGetEdges_v2 cuGraphGetId cuGraphGetNodes cuGraphGetRootNodes cuGraphHostNodeGetParams cuGraphHostNodeSetParams
            cuGraphKernelNodeCopyAttributes cuGraphKernelNodeGetAttribute cuGraphKernelNodeGetParams cuGraphKernelNodeGetParams_v2
            cuGraphKernelNodeSetAttribute cuGraphKernelNodeSetParams cuGraphKernelNodeSetParams_v2 cuGraphMemAllocNodeGetParams
            cuGraphMemFreeNodeGetParams cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeSetParams cuGraphMemsetNodeGetParams
            cuGraphMemsetNodeSetParams cuGraphNodeFindInClone cuGraphNodeGetContainingGraph cuGraphNodeGetDependencies
            cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes cuGraphNodeGetDependentNodes_v2 cuGraphNodeGetEnabled
            cuGraphNodeGetLocalId cuGraphNodeGetParams cuGraphNodeGetToolsId cuGraphNodeGetType cuGraphNodeSetEnabled
            cuGraphNodeSetParams cuGraphNodeSetParams_v2 cuGraphReleaseUserObject cuGraphRemoveDependencies
            cuGraphRemoveDependencies_v2 cuGraphRetainUserObject cuGraphicsEGLRegisterImage cuGraphicsGLRegisterBuffer
            cuGraphicsGLRegisterImage cuGraphicsMapResources cuGraphicsMapResources_ptsz cuGraphicsResourceGetMappedEglFrame
            cuGraphicsResourceGetMappedMipmappedArray cuGraphicsResourceGetMappedPointer cuGraphicsResourceGetMappedPointer_v2
            cuGraphicsResourceSetMapFlags cuGraphicsResourceSetMapFlags_v2 cuGraphicsSubResourceGetMappedArray
            cuGraphicsUnmapResources cuGraphicsUnmapResources_ptsz cuGraphicsUnregisterResource
            cuGraphicsVDPAURegisterOutputSurface cuGraphicsVDPAURegisterVideoSurface cuGreenCtxGetDevResource cuGreenCtxGetId
            cuGreenCtxRecordEvent cuGreenCtxWaitEvent cuImportExternalSemaphore cuKernelGetLibrary:Waits cuKernelGetName:Waits
            cuKernelGetParamCount:Waits cuKernelGetParamInfo:Waits cuKernelSetCacheConfig cuLaunchHostFunc cuLaunchHostFunc_ptsz
            cuLaunchHostFunc_v2 cuLaunchHostFunc_v2_ptsz cuLibraryEnumerateKernels cuLibraryGetKernelCount
            cuLibraryGetUnifiedFunction cuLibraryUnload cuLinkAddData cuLinkAddData_v2 cuLinkAddFile cuLinkAddFile_v2
            cuLinkComplete cuLinkCreate cuLinkCreate_v2 cuLinkDestroy cuLogicalEndpointAddDevice cuLogicalEndpointBindAddr
            cuLogicalEndpointBindMem cuLogicalEndpointCreate cuLogicalEndpointDestroy cuLogicalEndpointGetLimits
            cuLogicalEndpointIdRelease cuLogicalEndpointIdReserve cuLogicalEndpointQuery cuLogicalEndpointUnbind cuLogsCurrent
            cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback cuLogsUnregisterCallback cuMemAddressFree
            cuMemAddressReserve cuMemAdvise cuMemAdvise_v2 cuMemGetAccess cuMemGetAddressRange cuMemGetAllocationGranularity:Waits
            cuMemGetAllocationPropertiesFromHandle:Waits cuMemGetLocationInfo cuMemHostGetDevicePointer:Waits
            cuMemHostGetDevicePointer_v2:Waits cuMemHostGetFlags:Waits cuMemPoolGetAccess:Waits cuMemPoolGetAttribute:Waits
            cuMemPoolSetAccess cuMemPoolSetAttribute cuMemPoolTrimTo cuMemRangeGetAttribute cuMemRangeGetAttributes
            cuMipmappedArrayGetLevel cuMipmappedArrayGetMemoryRequirements cuMipmappedArrayGetSparseProperties
            cuModuleEnumerateFunctions cuModuleGetFunctionCount cuModuleGetLoadingMode:Waits cuModuleGetSurfRef cuModuleGetTexRef
            cuModuleUnload cuMulticastAddDevice cuMulticastGetGranularity:Waits cuOccupancyAvailableDynamicSMemPerBlock:Waits
            cuOccupancyMaxPotentialBlockSize:Waits cuOccupancyMaxPotentialBlockSizeWithFlags:Waits cuParamSetSize cuParamSetTexRef
            cuParamSetf cuParamSeti cuParamSetv cuPointerSetAttribute cuProfilerStart cuProfilerStop
            cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz cuStreamAddCallback cuStreamAddCallback_ptsz
            cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz cuStreamBatchMemOp cuStreamBatchMemOp_ptsz cuStreamBatchMemOp_v2
            cuStreamBatchMemOp_v2_ptsz cuStreamCopyAttributes cuStreamCopyAttributes_ptsz cuStreamGetAttribute:Waits
            cuStreamGetAttribute_ptsz:Waits cuStreamGetCaptureInfo:Waits cuStreamGetCaptureInfo_ptsz:Waits
            cuStreamGetCaptureInfo_v2:Waits cuStreamGetCaptureInfo_v2_ptsz:Waits cuStreamGetCaptureInfo_v3:Waits
            cuStreamGetCaptureInfo_v3_ptsz:Waits cuStreamGetCtx:Waits cuStreamGetCtx_ptsz:Waits cuStreamGetCtx_v2:Waits
            cuStreamGetCtx_v2_ptsz:Waits cuStreamGetDevResource cuStreamGetDevResource_ptsz cuStreamGetDevice:Waits
            cuStreamGetDevice_ptsz:Waits cuStreamGetFlags:Waits cuStreamGetFlags_ptsz:Waits cuStreamGetGreenCtx:Waits
            cuStreamGetId:Waits cuStreamGetId_ptsz:Waits cuStreamGetPriority:Waits cuStreamGetPriority_ptsz:Waits
            cuStreamIsCapturing:Waits cuStreamIsCapturing_ptsz:Waits cuStreamQuery:Stream cuStreamQuery_ptsz:Stream
            cuStreamSetAttribute cuStreamSetAttribute_ptsz cuStreamUpdateCaptureDependencies
            cuStreamUpdateCaptureDependencies_ptsz cuStreamUpdateCaptureDependencies_v2 cuStreamUpdateCaptureDependencies_v2_ptsz
            cuStreamWaitEvent cuStreamWaitEvent_ptsz cuStreamWaitValue32 cuStreamWaitValue32_ptsz cuStreamWaitValue32_v2
            cuStreamWaitValue32_v2_ptsz cuStreamWaitValue64 cuStreamWaitValue64_ptsz cuStreamWaitValue64_v2
            cuStreamWaitValue64_v2_ptsz cuStreamWriteValue32 cuStreamWriteValue32_ptsz cuStreamWriteValue32_v2
            cuStreamWriteValue32_v2_ptsz cuStreamWriteValue64 cuStreamWriteValue64_ptsz cuStreamWriteValue64_v2
            cuStreamWriteValue64_v2_ptsz cuSurfObjectCreate cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuSurfRefGetArray
            cuSurfRefSetArray cuTensorMapEncodeIm2col cuTensorMapEncodeIm2colWide cuTensorMapEncodeTiled cuTensorMapReplaceAddress
            cuTensorMapSetAllocationClass cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc
            cuTexObjectGetResourceViewDesc cuTexObjectGetTextureDesc cuTexRefCreate cuTexRefDestroy cuTexRefGetAddress
            cuTexRefGetAddressMode cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor cuTexRefGetFilterMode
            cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias
            cuTexRefGetMipmapLevelClamp cuTexRefGetMipmappedArray cuTexRefSetAddress cuTexRefSetAddress2D cuTexRefSetAddress2D_v2
            cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode cuTexRefSetAddress_v2 cuTexRefSetArray cuTexRefSetBorderColor
            cuTexRefSetFilterMode cuTexRefSetFlags cuTexRefSetFormat cuTexRefSetMaxAnisotropy cuTexRefSetMipmapFilterMode
            cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp cuTexRefSetMipmappedArray
            cuThreadExchangeStreamCaptureMode:Waits cuUserObjectCreate cuUserObjectRelease cuUserObjectRetain cuVDPAUCtxCreate
            cuVDPAUCtxCreate_v2 cuVDPAUGetDevice cuWGLGetDevice cuWaitExternalSemaphoresAsync cuWaitExternalSemaphoresAsync_ptsz
        }
    };
}

/// A query reads state and asks for no work, so a program may repeat it while it has nothing to do. It counts neither as use of
/// the device nor as a wish for evicted memory. Where the shim has copied the memory to the host, the driver answers every
/// query; the variants are the behaviour after a checkpoint (580.159.04).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Query {
    /// The driver answers.
    Answers = 1,
    /// The driver crashes on a query of a stream. All work was complete before the checkpoint.
    Stream,
    /// The driver crashes on a query of an event, as on one of a stream.
    Event,
    /// The call waits for the restore, as a request does.
    Waits,
}

impl Query {
    /// Every variant.
    pub const ALL: [Self; 4] = [Self::Answers, Self::Stream, Self::Event, Self::Waits];
}

macro_rules! others {
    ($($name:ident $(:$query:ident)?)*) => {
        const OTHERS: &[(&str, Option<Query>)] = &[$((stringify!($name), query!($($query)?))),*];
    };
}

macro_rules! query {
    () => {
        None
    };
    ($query:ident) => {
        Some(Query::$query)
    };
}

other_functions!(others);

macro_rules! rows {
    (
        hooked { $($(#[doc = $about:literal])* $base:literal $since:literal $kind:ident $($hook:ident)::+ $(($($given:ident),*))? fn $name:ident $args:tt $(twin $twin:ident)?;)* }
        used { $($used:tt)* }
    ) => {
        const ROWS: &[(&str, Option<Query>)] = &[$((stringify!($name), row!($kind))),*];
    };
}

macro_rules! row {
    (query) => {
        Some(Query::Answers)
    };
    ($kind:ident) => {
        None
    };
}

crate::driver_table!(rows);

/// The queries. Only they are in the library: each name costs every process that starts with it a relocation.
static QUERIES: [(&str, Query); count(OTHERS) + count(ROWS)] = {
    let mut queries = [("", Query::Answers); count(OTHERS) + count(ROWS)];
    let (mut count, mut at) = (0, 0);
    while at < OTHERS.len() + ROWS.len() {
        let (name, query) = match at < OTHERS.len() {
            true => OTHERS[at],
            false => ROWS[at - OTHERS.len()],
        };
        if let Some(query) = query {
            queries[count] = (name, query);
            count += 1;
        }
        at += 1;
    }
    queries
};

const fn count(functions: &[(&str, Option<Query>)]) -> usize {
    let (mut count, mut at) = (0, 0);
    while at < functions.len() {
        count += functions[at].1.is_some() as usize;
        at += 1;
    }
    count
}

/// Returns how a function is answered if it is a query.
pub fn query_of(name: &str) -> Option<Query> {
    let mut queries = QUERIES.iter();
    queries.find_map(|(query, answer)| (*query == name).then_some(*answer))
}

/// The reason why a function of the driver has no row and is not one of [`other_functions`](crate::other_functions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Its result does not depend on the device and it never waits, so an evicted process may call it.
    NeverWaits,
    /// It is code in the header; the driver exports no such name.
    InTheHeader,
}

/// The functions that are left out. `shim/tests/header.rs` compares the table with NVIDIA's newest header and names each
/// function that is in neither list.
pub const LEFT_OUT: [(&str, LeftOut); 6] = [
    ("cuDriverGetVersion", LeftOut::NeverWaits),
    ("cuGetErrorName", LeftOut::NeverWaits),
    ("cuGetErrorString", LeftOut::NeverWaits),
    ("cuGetExportTable", LeftOut::NeverWaits),
    ("cuGetProcAddress_v2_ptsz", LeftOut::InTheHeader),
    ("cuProfilerInitialize", LeftOut::NeverWaits),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_sorted() {
        assert!(OTHERS.is_sorted_by_key(|(name, _)| name));
    }

    #[test]
    fn a_query_is_told_from_a_request() {
        for (name, query) in [
            ("cuEventQuery", Some(Query::Event)),
            ("cuCtxGetCurrent", Some(Query::Answers)),
            ("cuMemGetInfo_v2", Some(Query::Answers)),
            ("cuStreamIsCapturing", Some(Query::Waits)),
            ("cuEventRecord", None),
            ("cuMemAlloc_v2", None),
            ("cuNoSuch", None),
        ] {
            assert_eq!(query_of(name), query, "{name}");
        }
    }
}
