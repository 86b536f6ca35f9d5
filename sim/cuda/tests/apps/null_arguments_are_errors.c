// Each of these answers an error, and nothing worse, when all it is given is nothing. That is the simulator's
// promise: the real driver crashes on some.
#define _GNU_SOURCE
#include "app.h"
#include <dlfcn.h>

typedef Result Function(size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t);

#define F(name) #name,
static const char *const names[] = {
    F(cuStreamBeginCapture) F(cuStreamBeginCapture_v2) F(cuStreamBeginCaptureToGraph) F(cuStreamEndCapture)
    F(cuStreamIsCapturing) F(cuStreamGetCaptureInfo) F(cuStreamGetCaptureInfo_v2) F(cuStreamGetCaptureInfo_v3)
    F(cuStreamUpdateCaptureDependencies) F(cuStreamUpdateCaptureDependencies_v2)
    F(cuThreadExchangeStreamCaptureMode) F(cuMemAllocAsync) F(cuMemAllocFromPoolAsync) F(cuDeviceGetDefaultMemPool)
    F(cuDeviceGetMemPool) F(cuDeviceSetMemPool) F(cuMemGetDefaultMemPool) F(cuMemGetMemPool) F(cuMemSetMemPool)
    F(cuMemPoolCreate) F(cuMemPoolDestroy) F(cuMemPoolTrimTo) F(cuMemPoolGetAttribute) F(cuMemPoolSetAttribute)
    F(cuMemPoolSetAccess) F(cuMemPoolGetAccess) F(cuMemPoolExportToShareableHandle)
    F(cuMemPoolImportFromShareableHandle) F(cuMemPoolExportPointer) F(cuMemPoolImportPointer) F(cuMemCreate)
    F(cuMemRelease) F(cuMemRetainAllocationHandle) F(cuMemAddressReserve) F(cuMemAddressFree) F(cuMemMap)
    F(cuMemUnmap) F(cuMemSetAccess) F(cuMemGetAccess) F(cuMemGetAllocationGranularity)
    F(cuMemGetAllocationPropertiesFromHandle) F(cuMemExportToShareableHandle) F(cuMemImportFromShareableHandle)
    F(cuIpcGetMemHandle) F(cuIpcOpenMemHandle) F(cuIpcOpenMemHandle_v2) F(cuIpcCloseMemHandle)
    F(cuIpcGetEventHandle) F(cuIpcOpenEventHandle) F(cuMemAllocHost_v2) F(cuMemHostAlloc) F(cuMemFreeHost)
    F(cuMemHostRegister_v2) F(cuMemHostRegister) F(cuMemHostUnregister) F(cuMemHostGetDevicePointer_v2)
    F(cuMemHostGetFlags) F(cuTexObjectCreate) F(cuTexObjectDestroy) F(cuTexObjectGetResourceDesc)
    F(cuTexObjectGetTextureDesc) F(cuTexObjectGetResourceViewDesc) F(cuSurfObjectCreate) F(cuSurfObjectDestroy)
    F(cuSurfObjectGetResourceDesc) F(cuMemPrefetchAsync) F(cuMemPrefetchAsync_v2) F(cuMemPrefetchBatchAsync)
    F(cuMemDiscardAndPrefetchBatchAsync) F(cuMemDiscardBatchAsync) F(cuMemAdvise) F(cuMemAdvise_v2)
    F(cuMemRangeGetAttribute) F(cuMemRangeGetAttributes) F(cuStreamAttachMemAsync) F(cuArrayCreate_v2)
    F(cuArray3DCreate_v2) F(cuArrayGetDescriptor_v2) F(cuArray3DGetDescriptor_v2) F(cuArrayDestroy)
    F(cuArrayGetPlane) F(cuArrayGetMemoryRequirements) F(cuMipmappedArrayGetMemoryRequirements)
    F(cuArrayGetSparseProperties) F(cuMipmappedArrayGetSparseProperties) F(cuMipmappedArrayCreate)
    F(cuMipmappedArrayGetLevel) F(cuMipmappedArrayDestroy) F(cuMemMapArrayAsync) F(cuPointerGetAttribute)
    F(cuPointerGetAttributes) F(cuPointerSetAttribute) F(cuGraphAddKernelNode) F(cuGraphAddKernelNode_v2)
    F(cuGraphAddMemcpyNode) F(cuGraphAddMemsetNode) F(cuGraphAddHostNode) F(cuGraphAddChildGraphNode)
    F(cuGraphAddEmptyNode) F(cuGraphAddEventRecordNode) F(cuGraphAddEventWaitNode) F(cuGraphAddBatchMemOpNode)
    F(cuGraphAddMemAllocNode) F(cuGraphAddMemFreeNode) F(cuGraphAddNode) F(cuGraphAddNode_v2)
    F(cuGraphAddExternalSemaphoresSignalNode) F(cuGraphAddExternalSemaphoresWaitNode)
    F(cuGraphConditionalHandleCreate) F(cuGraphCreate) F(cuGraphDestroy) F(cuGraphDestroyNode) F(cuGraphClone)
    F(cuGraphNodeFindInClone) F(cuGraphNodeGetType) F(cuGraphGetNodes) F(cuGraphGetRootNodes) F(cuGraphGetEdges)
    F(cuGraphGetEdges_v2) F(cuGraphNodeGetDependencies) F(cuGraphNodeGetDependencies_v2)
    F(cuGraphNodeGetDependentNodes) F(cuGraphNodeGetDependentNodes_v2) F(cuGraphAddDependencies)
    F(cuGraphAddDependencies_v2) F(cuGraphRemoveDependencies) F(cuGraphRemoveDependencies_v2)
    F(cuGraphDebugDotPrint) F(cuGraphInstantiate) F(cuGraphInstantiate_v2) F(cuGraphInstantiateWithFlags)
    F(cuGraphInstantiateWithParams) F(cuGraphExecGetFlags) F(cuGraphUpload) F(cuGraphLaunch) F(cuGraphExecDestroy)
    F(cuGraphExecUpdate) F(cuGraphExecUpdate_v2) F(cuGraphExecKernelNodeSetParams)
    F(cuGraphExecKernelNodeSetParams_v2) F(cuGraphExecMemcpyNodeSetParams) F(cuGraphExecMemsetNodeSetParams)
    F(cuGraphExecHostNodeSetParams) F(cuGraphExecChildGraphNodeSetParams) F(cuGraphExecEventRecordNodeSetEvent)
    F(cuGraphExecEventWaitNodeSetEvent) F(cuGraphExecBatchMemOpNodeSetParams) F(cuGraphExecNodeSetParams)
    F(cuGraphNodeSetEnabled) F(cuGraphNodeGetEnabled) F(cuGraphExecExternalSemaphoresSignalNodeSetParams)
    F(cuGraphExecExternalSemaphoresWaitNodeSetParams) F(cuGraphExternalSemaphoresSignalNodeGetParams)
    F(cuGraphExternalSemaphoresSignalNodeSetParams) F(cuGraphExternalSemaphoresWaitNodeGetParams)
    F(cuGraphExternalSemaphoresWaitNodeSetParams) F(cuDeviceGetGraphMemAttribute) F(cuDeviceSetGraphMemAttribute)
    F(cuGraphKernelNodeGetParams) F(cuGraphKernelNodeGetParams_v2) F(cuGraphKernelNodeSetParams)
    F(cuGraphKernelNodeSetParams_v2) F(cuGraphKernelNodeCopyAttributes) F(cuGraphKernelNodeGetAttribute)
    F(cuGraphKernelNodeSetAttribute) F(cuGraphMemcpyNodeGetParams) F(cuGraphMemcpyNodeSetParams)
    F(cuGraphMemsetNodeGetParams) F(cuGraphMemsetNodeSetParams) F(cuGraphHostNodeGetParams)
    F(cuGraphHostNodeSetParams) F(cuGraphChildGraphNodeGetGraph) F(cuGraphEventRecordNodeGetEvent)
    F(cuGraphEventRecordNodeSetEvent) F(cuGraphEventWaitNodeGetEvent) F(cuGraphEventWaitNodeSetEvent)
    F(cuGraphBatchMemOpNodeGetParams) F(cuGraphBatchMemOpNodeSetParams) F(cuGraphMemAllocNodeGetParams)
    F(cuGraphMemFreeNodeGetParams) F(cuGraphNodeSetParams) F(cuUserObjectCreate) F(cuUserObjectRetain)
    F(cuUserObjectRelease) F(cuGraphRetainUserObject) F(cuGraphReleaseUserObject)
};

static int successes;

static void call_all(void) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Function *function = (Function *)dlsym(RTLD_DEFAULT, names[i]);
        if (!function) fprintf(stderr, "%s is not there\n", names[i]), exit(1);
        if (function(0, 0, 0, 0, 0, 0, 0, 0, 0) == OK) {
            fprintf(stderr, "%s succeeded\n", names[i]);
            successes++;
        }
    }
}

int main(void) {
    call_all(); // Before cuInit.
    start();
    call_all();
    return successes > 0;
}
