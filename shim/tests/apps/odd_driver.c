/* A driver with behaviour that the simulator does not have: pitches in units of 768, host pools, sparse arrays with
 * mapped memory, external memory, fabric handles, copies with attributes, and the 32-bit calls. It returns numbers
 * and stores only how many addresses are allocated, and the pool that was destroyed last. A test runs code inside some calls. */
#include <stdint.h>
#include <string.h>

typedef unsigned long long u64;

static u64 next = 0x10000;
static int allocated;

/* Run once, inside the call. */
void (*odd_in_pool_size)(void), (*odd_in_pool_destroy)(void), (*odd_in_release)(void);
/* The number of uses of a destroyed pool, or of one that was destroyed during its use. */
int odd_wrong;

static void once(void (**action)(void)) {
    void (*now)(void) = *action;
    *action = 0;
    if (now) now();
}

static u64 number(void) { return next += 512; }

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDriverGetVersion(int *version) { return *version = 12090, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal ? 101 : 0; }
int cuDeviceGetName(char *name, int length, int device) { return strncpy(name, "Odd device", length), device; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return memset(uuid, 9, 16), device; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)16 << 30, device; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)0x1000, device; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { return *flags = 0, *active = 1, device; }
/* The primary context has a reference that the program does not know of. */
int cuDevicePrimaryCtxRelease_v2(int device) { return once(&odd_in_release), device; }
int cuCtxSetCurrent(void *context) { return (void)context, 0; }
int cuCtxGetCurrent(void **context) { return *context = (void *)0x1000, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }

int cuMemAlloc_v2(u64 *dptr, size_t bytes) { return *dptr = number(), allocated++, bytes ? 0 : 1; }
int cuMemFree_v2(u64 dptr) { return allocated--, dptr ? 0 : 1; }
int cuMemAllocPitch_v2(u64 *dptr, size_t *pitch, size_t width, size_t height, unsigned element) {
    *pitch = (width + 767) / 768 * 768;
    allocated++;
    return *dptr = number(), height && element ? 0 : 1;
}
/* The number of allocated addresses, where the client can query it. */
int cuMemGetInfo_v2(size_t *free, size_t *total) { return *free = (size_t)allocated, *total = (size_t)16 << 30, 0; }

int cuMemPoolCreate(u64 *pool, const void *props) { return *pool = number(), props ? 0 : 1; }
int cuMemAllocFromPoolAsync(u64 *dptr, size_t bytes, u64 pool, void *stream) {
    return *dptr = number(), allocated++, bytes && pool && !stream ? 0 : 1;
}
int cuMemFreeAsync(u64 dptr, void *stream) { return allocated--, dptr && !stream ? 0 : 1; }
static u64 current_pool = 0x100, destroyed_pool;
int cuDeviceGetMemPool(u64 *pool, int device) { return *pool = current_pool, device; }
int cuDeviceSetMemPool(int device, u64 pool) { return current_pool = pool, device; }
int cuMemAllocAsync(u64 *dptr, size_t bytes, void *stream) { return (void)stream, *dptr = number(), allocated++, bytes ? 0 : 1; }
int cuMemPoolGetAttribute(u64 pool, int which, u64 *value) {
    once(&odd_in_pool_size);
    odd_wrong += pool == destroyed_pool;
    return *value = 0, !which;
}
int cuMemPoolTrimTo(u64 pool, size_t keep) { return odd_wrong += pool == destroyed_pool, (void)keep, 0; }
int cuMemPoolDestroy(u64 pool) {
    once(&odd_in_pool_destroy);
    destroyed_pool = pool;
    if (current_pool == pool) current_pool = 0x100;
    return 0;
}

int cuMemCreate(u64 *handle, size_t bytes, const void *prop, u64 flags) { return *handle = number(), bytes && prop && !flags ? 0 : 1; }
int cuMemRelease(u64 handle) { return handle ? 0 : 1; }
int cuArray3DCreate_v2(u64 *array, const void *desc) { return *array = number(), desc ? 0 : 1; }
int cuArrayDestroy(u64 array) { return array ? 0 : 1; }
int cuMemMapArrayAsync(const void *list, unsigned count, void *stream) { return list && count && !stream ? 0 : 1; }

int cuImportExternalMemory(u64 *memory, const void *desc) { return *memory = number(), desc ? 0 : 1; }
int cuDestroyExternalMemory(u64 memory) { return memory ? 0 : 1; }

/* A fabric handle is the memory's handle, eight times; an import is a new handle. */
int cuMemExportToShareableHandle(u64 *name, u64 handle, int kind, u64 flags) {
    for (int i = 0; i < 8; i++) name[i] = handle;
    return kind == 8 && !flags ? 0 : 801;
}
int cuMemImportFromShareableHandle(u64 *handle, const u64 *name, int kind) { return *handle = number(), kind == 8 && name ? 0 : 801; }
int cuMulticastCreate(u64 *team, const void *prop) { return *team = number(), prop ? 0 : 1; }
int cuMulticastBindMem_v2(u64 team, int device, size_t at, u64 memory, size_t from, size_t bytes, u64 flags) {
    return team && !device && !at && memory && !from && bytes && !flags ? 0 : 1;
}
int cuMulticastUnbind(u64 team, int device, size_t at, size_t bytes) { return team && !device && !at && bytes ? 0 : 1; }

int cuStreamCreate(u64 *stream, unsigned flags) { return *stream = number(), flags > 1; }
/* Each capture is broken when it ends, and all graphs have the same handle. */
static u64 captured;
int cuStreamIsCapturing(u64 stream, int *status) { return *status = stream && stream == captured, !stream; }
int cuStreamBeginCapture_v2(u64 stream, int mode) { return captured = stream, mode > 2; }
int cuStreamGetCaptureInfo_v2(u64 stream, int *status, u64 *id, u64 *graph, const void *nodes, size_t *count) {
    *status = stream && stream == captured;
    if (*status) *graph = 0x2000;
    return id || nodes || count;
}
int cuStreamEndCapture(u64 stream, u64 *graph) { return captured = *graph = 0, stream ? 901 : 1; }
int cuStreamDestroy_v2(u64 stream) { return captured = 0, !stream; }
int cuCtxDestroy_v2(void *context) { return captured = 0, !context; }
int cuGraphCreate(u64 *graph, unsigned flags) { return *graph = 0x2000, flags != 0; }
int cuGraphInstantiateWithFlags(u64 *exec, u64 graph, u64 flags) { return *exec = number(), graph != 0x2000 || flags; }
int cuGraphLaunch(u64 exec, u64 stream) { return !exec || !stream; }
int cuStreamSynchronize(u64 stream) { return !stream; }
int cuStreamQuery(void *stream) { return !stream; }
int cuMemcpyWithAttributesAsync(u64 to, u64 from, size_t bytes, const void *how, void *stream) { return !to || !from || how || !bytes || !stream; }
int cuArray3DGetDescriptor_v2(size_t *desc, u64 array) { /* one channel of four bytes */
    desc[0] = 8, desc[1] = 8, desc[2] = 8;
    ((unsigned *)desc)[6] = 0x20, ((unsigned *)desc)[7] = 1, ((unsigned *)desc)[8] = 0;
    return !array;
}
int cuMemcpy3DWithAttributesAsync(const void *op, u64 flags, void *stream) { return !op || flags || !stream; }

int cuMemAlloc(unsigned *dptr, unsigned bytes) { return *dptr = (unsigned)number(), allocated++, bytes ? 0 : 1; }
int cuMemFree(unsigned dptr) { return allocated--, dptr ? 0 : 1; }
int cuMemAllocPitch(unsigned *dptr, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
    *pitch = (width + 767) / 768 * 768;
    return *dptr = (unsigned)number(), allocated++, height && element ? 0 : 1;
}
int cuMemGetInfo(unsigned *free, unsigned *total) { return *free = *total = 3u << 30, 0; }
int cuArrayCreate(u64 *array, const void *desc) { return *array = number(), desc ? 0 : 1; }
int cuMemcpyHtoD(unsigned to, const void *from, unsigned bytes) { return !to || !from || !bytes; }
int cuMemcpyDtoH(void *to, unsigned from, unsigned bytes) { return !to || !from || !bytes; }
int cuMemcpyHtoDAsync(unsigned to, const void *from, unsigned bytes, void *stream) { return !to || !from || !bytes || stream; }
int cuMemcpy2D(const void *copy) { return !copy; }
int cuMemsetD8(unsigned to, unsigned char value, unsigned count) { return !to || value != 1 || !count; }

int cuFabricCpyBatchAsync(size_t count, const void *list, u64 flags, void *stream) { return !count || !list || flags || !stream; }
int cuStreamBeginCaptureToCig(void *stream, const void *params) { return !stream || params; }
int cuStreamEndCaptureToCig(void *stream) { return !stream; }

/* It makes no checkpoint, but reports that it could. */
int cuCheckpointProcessGetState(int pid, int *state) { return *state = 0, !pid; }
int cuCheckpointProcessLock(int pid, const void *how) { return (void)how, pid ? 801 : 1; }
int cuCheckpointProcessCheckpoint(int pid, const void *how) { return (void)how, pid ? 801 : 1; }
int cuCheckpointProcessRestore(int pid, const void *how) { return (void)how, pid ? 801 : 1; }
int cuCheckpointProcessUnlock(int pid, const void *how) { return (void)how, pid ? 801 : 1; }

/* The heap has at most 64 MiB. */
static size_t heap = 8u << 20;
int cuCtxSetLimit(unsigned limit, size_t value) { return heap = value < 64u << 20 ? value : 64u << 20, limit != 2; }
int cuCtxGetLimit(size_t *value, unsigned limit) { return *value = heap, limit != 2; }
int cuCtxAttach(void **context, unsigned flags) { return *context = (void *)0x1000, flags != 0; }
int cuCtxDetach(void *context) { return !context; }
