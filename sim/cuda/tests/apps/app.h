// What the small programs share: the driver's functions as they use them, and saying what went wrong.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long Ptr;
typedef struct Handle *Any; // contexts, streams, events, arrays, pools, graphs, nodes
typedef int Result;

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, ILLEGAL_STATE = 401,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_MERGE = 902, CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905, CAPTURE_IMPLICIT = 906, CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908, GRAPH_UPDATE_FAILURE = 910,
};
enum { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };
enum { NON_BLOCKING = 1 };
enum { HOST = 1, DEVICE = 2, ARRAY = 3 };

typedef struct { int type, id; } Location;
typedef struct {
    int type, handle_types;
    Location location;
    void *windows;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
} Prop;
typedef struct { Location location; int flags; } Access;
typedef struct {
    int type, handle_types;
    Location location;
    void *windows;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} PoolProps;
typedef struct { size_t width, height; int format; unsigned channels; } Shape;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } Shape3;
typedef struct {
    size_t from_x, from_y;
    int from_kind;
    const void *from_host;
    Ptr from_device;
    Any from_array;
    size_t from_pitch, to_x, to_y;
    int to_kind;
    void *to_host;
    Ptr to_device;
    Any to_array;
    size_t to_pitch, width, height;
} Copy2;
typedef struct {
    size_t from_x, from_y, from_z, from_level;
    int from_kind;
    const void *from_host;
    Ptr from_device;
    Any from_array;
    void *reserved0;
    size_t from_pitch, from_height, to_x, to_y, to_z, to_level;
    int to_kind;
    void *to_host;
    Ptr to_device;
    Any to_array;
    void *reserved1;
    size_t to_pitch, to_height, width, height, depth;
} Copy3;
typedef struct { Ptr to; size_t pitch; unsigned value, element; size_t width, height; } Fill;
typedef struct { void (*function)(void *); void *data; } HostCall;
typedef struct { PoolProps pool; const Access *access; size_t access_count, bytes; Ptr address; } GraphAlloc;
typedef struct { char bytes[64]; } IpcHandle;

Result cuInit(unsigned);
Result cuDeviceGet(int *, int);
Result cuDeviceGetCount(int *);
Result cuDevicePrimaryCtxRetain(Any *, int);
Result cuCtxSetCurrent(Any);
Result cuCtxSynchronize(void);
Result cuStreamCreate(Any *, unsigned);
Result cuStreamDestroy_v2(Any);
Result cuStreamSynchronize(Any);
Result cuStreamQuery(Any);
Result cuStreamWaitEvent(Any, Any, unsigned);
Result cuStreamBeginCapture_v2(Any, int);
Result cuStreamEndCapture(Any, Any *);
Result cuStreamIsCapturing(Any, int *);
Result cuThreadExchangeStreamCaptureMode(int *);
Result cuEventCreate(Any *, unsigned);
Result cuEventDestroy_v2(Any);
Result cuEventRecord(Any, Any);
Result cuEventRecordWithFlags(Any, Any, unsigned);
Result cuEventQuery(Any);
Result cuEventSynchronize(Any);
Result cuLaunchKernel(Any, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Any, void **, void **);
Result cuLaunchHostFunc(Any, void (*)(void *), void *);
Result cuModuleLoadData(Any *, const void *);
Result cuModuleGetFunction(Any *, Any, const char *);
Result cuModuleUnload(Any);
Result cuFuncLoad(Any);
Result cuMemAlloc_v2(Ptr *, size_t);
Result cuMemFree_v2(Ptr);
Result cuMemAllocManaged(Ptr *, size_t, unsigned);
Result cuMemAdvise(Ptr, size_t, int, int);
Result cuMemPrefetchAsync(Ptr, size_t, int, Any);
Result cuMemRangeGetAttribute(void *, size_t, int, Ptr, size_t);
Result cuMemGetInfo_v2(size_t *, size_t *);
Result cuMemcpy(Ptr, Ptr, size_t);
Result cuMemcpyHtoD_v2(Ptr, const void *, size_t);
Result cuMemcpyDtoH_v2(void *, Ptr, size_t);
Result cuMemcpyDtoD_v2(Ptr, Ptr, size_t);
Result cuMemcpyHtoDAsync_v2(Ptr, const void *, size_t, Any);
Result cuMemcpyDtoHAsync_v2(void *, Ptr, size_t, Any);
Result cuMemcpyDtoDAsync_v2(Ptr, Ptr, size_t, Any);
Result cuMemsetD32_v2(Ptr, unsigned, size_t);
Result cuMemsetD32Async(Ptr, unsigned, size_t, Any);
Result cuMemcpy2D_v2(const Copy2 *);
Result cuMemcpy3D_v2(const Copy3 *);
Result cuMemAllocAsync(Ptr *, size_t, Any);
Result cuMemAllocFromPoolAsync(Ptr *, size_t, Any pool, Any);
Result cuMemFreeAsync(Ptr, Any);
Result cuDeviceGetDefaultMemPool(Any *, int);
Result cuDeviceGetMemPool(Any *, int);
Result cuDeviceSetMemPool(int, Any);
Result cuMemPoolCreate(Any *, const PoolProps *);
Result cuMemPoolDestroy(Any);
Result cuMemPoolTrimTo(Any, size_t);
Result cuMemPoolGetAttribute(Any, int, void *);
Result cuMemPoolSetAttribute(Any, int, void *);
Result cuMemPoolSetAccess(Any, const Access *, size_t);
Result cuMemPoolGetAccess(int *, Any, const Location *);
Result cuMemGetDefaultMemPool(Any *, const Location *, int);
Result cuMemGetMemPool(Any *, const Location *, int);
Result cuMemSetMemPool(const Location *, int, Any);
Result cuMemPoolExportToShareableHandle(void *, Any, int, unsigned long long);
Result cuMemPoolImportFromShareableHandle(Any *, void *, int, unsigned long long);
Result cuMemPoolExportPointer(IpcHandle *, Ptr);
Result cuMemPoolImportPointer(Ptr *, Any, IpcHandle *);
Result cuMemGetAllocationGranularity(size_t *, const Prop *, int);
Result cuMemCreate(Ptr *, size_t, const Prop *, unsigned long long);
Result cuMemRelease(Ptr);
Result cuMemRetainAllocationHandle(Ptr *, void *);
Result cuMemAddressReserve(Ptr *, size_t, size_t, Ptr, unsigned long long);
Result cuMemAddressFree(Ptr, size_t);
Result cuMemMap(Ptr, size_t, size_t, Ptr, unsigned long long);
Result cuMemUnmap(Ptr, size_t);
Result cuMemSetAccess(Ptr, size_t, const Access *, size_t);
Result cuMemGetAccess(unsigned long long *, const Location *, Ptr);
Result cuMemExportToShareableHandle(void *, Ptr, int, unsigned long long);
Result cuMemImportFromShareableHandle(Ptr *, void *, int);
Result cuArrayCreate_v2(Any *, const Shape *);
Result cuArray3DCreate_v2(Any *, const Shape3 *);
Result cuArray3DGetDescriptor_v2(Shape3 *, Any);
Result cuArrayDestroy(Any);
Result cuMemcpyHtoA_v2(Any, size_t, const void *, size_t);
Result cuMemcpyAtoH_v2(void *, Any, size_t, size_t);
Result cuMipmappedArrayCreate(Any *, const Shape3 *, unsigned);
Result cuMipmappedArrayGetLevel(Any *, Any, unsigned);
Result cuMipmappedArrayDestroy(Any);
Result cuMemHostAlloc(void **, size_t, unsigned);
Result cuMemFreeHost(void *);
Result cuMemHostRegister_v2(void *, size_t, unsigned);
Result cuMemHostUnregister(void *);
Result cuMemHostGetDevicePointer_v2(Ptr *, void *, unsigned);
Result cuIpcGetEventHandle(IpcHandle *, Any);
Result cuIpcOpenEventHandle(Any *, IpcHandle);
Result cuPointerGetAttribute(void *, int, Ptr);
Result cuPointerSetAttribute(const void *, int, Ptr);
Result cuDeviceGetAttribute(int *, int, int);
Result cuDeviceCanAccessPeer(int *, int, int);
Result cuDeviceGetP2PAttribute(int *, int, int, int);
Result cuCtxEnablePeerAccess(Any, unsigned);
Result cuCtxDisablePeerAccess(Any);
Result cuCtxCreate_v2(Any *, unsigned, int);
Result cuCtxDestroy_v2(Any);
Result cuCtxGetDevice(int *);
Result cuDevicePrimaryCtxReset_v2(int);
Result cuMemcpyPeer(Ptr, Any, Ptr, Any, size_t);
Result cuIpcGetMemHandle(IpcHandle *, Ptr);
Result cuIpcOpenMemHandle_v2(Ptr *, IpcHandle, unsigned);
Result cuIpcCloseMemHandle(Ptr);
Result cuGraphCreate(Any *, unsigned);
Result cuGraphDestroy(Any);
Result cuGraphAddEmptyNode(Any *, Any, const Any *, size_t);
Result cuGraphAddMemsetNode(Any *, Any, const Any *, size_t, const Fill *, Any context);
Result cuGraphAddHostNode(Any *, Any, const Any *, size_t, const HostCall *);
Result cuGraphAddChildGraphNode(Any *, Any, const Any *, size_t, Any);
Result cuGraphAddMemAllocNode(Any *, Any, const Any *, size_t, GraphAlloc *);
Result cuGraphAddMemFreeNode(Any *, Any, const Any *, size_t, Ptr);
Result cuGraphAddDependencies(Any, const Any *, const Any *, size_t);
Result cuGraphGetNodes(Any, Any *, size_t *);
Result cuGraphNodeGetType(Any, int *);
Result cuGraphClone(Any *, Any);
Result cuGraphNodeFindInClone(Any *, Any, Any);
Result cuGraphInstantiateWithFlags(Any *, Any, unsigned long long);
Result cuGraphLaunch(Any, Any);
Result cuGraphExecDestroy(Any);
Result cuGraphExecUpdate_v2(Any, Any, void *);
Result cuGraphExecMemsetNodeSetParams(Any, Any, const Fill *, Any context);
Result cuGraphNodeSetEnabled(Any, Any, unsigned);
Result cuUserObjectCreate(Any *, void *, void (*)(void *), unsigned, unsigned);
Result cuUserObjectRetain(Any, unsigned);
Result cuUserObjectRelease(Any, unsigned);
Result cuGraphRetainUserObject(Any, Any, unsigned, unsigned);
Result cuGraphReleaseUserObject(Any, Any, unsigned);
Result cuDeviceGraphMemTrim(int);
Result cuDeviceGetGraphMemAttribute(int, int, void *);
Result cuGetErrorName(Result, const char **);

static inline void expect_at(int line, const char *what, Result got, Result wanted) {
    if (got == wanted) return;
    const char *name = "?";
    cuGetErrorName(got, &name);
    fprintf(stderr, "line %d: %s answered %d (%s), not %d\n", line, what, got, name, wanted);
    exit(1);
}
// The call answers this.
#define EXPECT(call, wanted) expect_at(__LINE__, #call, call, wanted)
// The call succeeds.
#define DO(call) EXPECT(call, OK)
// This holds.
#define TRUE(condition)                                                                                              \
    do {                                                                                                             \
        if (!(condition)) fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition), exit(1);                     \
    } while (0)

// Makes the first device's primary context current.
static inline Any start(void) {
    Any context;
    DO(cuInit(0));
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
    return context;
}

static inline size_t free_bytes(void) {
    size_t available, total;
    DO(cuMemGetInfo_v2(&available, &total));
    return available;
}

// Pinned memory of the first device.
static inline Prop on_device(void) {
    Prop prop = {.type = 1, .handle_types = 1, .location = {1, 0}};
    return prop;
}
