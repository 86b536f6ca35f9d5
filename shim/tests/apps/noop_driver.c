/* A driver that does nothing: for the library's own cost of a call, and for lookups of functions. Built as
 * libcuda.so.1. One device, one context, addresses that count up. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
typedef int res;
static char context, next_bytes;
static uint64_t next_address = 1 << 20;

EXPORT res cuInit(unsigned flags) { return flags ? 1 : 0; }
EXPORT res cuDriverGetVersion(int *version) { *version = 12090; return 0; }
EXPORT res cuDeviceGetCount(int *count) { *count = 1; return 0; }
EXPORT res cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : 0; }
EXPORT res cuDeviceGetName(char *name, int len, int device) { snprintf(name, len, "Idle device"); return 0; }
EXPORT res cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, 7, 16); return 0; }
EXPORT res cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 16UL << 30; return 0; }
EXPORT res cuCtxGetCurrent(void **ctx) { *ctx = &context; return 0; }
EXPORT res cuCtxGetDevice(int *device) { *device = 0; return 0; }
EXPORT res cuCtxSetCurrent(void *ctx) { return 0; }
EXPORT res cuCtxPushCurrent_v2(void *ctx) { return 0; }
EXPORT res cuCtxPopCurrent_v2(void **ctx) { *ctx = &context; return 0; }
EXPORT res cuCtxSynchronize(void) { return 0; }
EXPORT res cuStreamIsCapturing(void *stream, int *status) { *status = 0; return 0; }
EXPORT res cuStreamQuery(void *stream) { return 0; }
EXPORT res cuThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return 0; }
EXPORT res cuEventCreate(void **event, unsigned flags) { *event = &context; return 0; }
EXPORT res cuEventRecord(void *event, void *stream) { return 0; }
EXPORT res cuEventQuery(void *event) { return 0; }
EXPORT res cuEventDestroy_v2(void *event) { return 0; }
EXPORT res cuMemAlloc_v2(uint64_t *address, size_t bytes) { *address = next_address += 512; return bytes ? 0 : 1; }
EXPORT res cuDeviceGetMemPool(void **pool, int device) { *pool = &context; return 0; }
EXPORT res cuMemPoolGetAttribute(void *pool, int attribute, uint64_t *value) { *value = 0; return 0; }
EXPORT res cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream) { return cuMemAlloc_v2(address, bytes); }
EXPORT res cuMemFreeAsync(uint64_t address, void *stream) { return 0; }
/* The first version of the same function, and one that is newer than any known version. */
EXPORT res cuMemAlloc(unsigned *address, unsigned bytes) { *address = 512; return 0; }
EXPORT res cuMemAlloc_v3(uint64_t *address, size_t bytes, int more) { return cuMemAlloc_v2(address, bytes); }
EXPORT res cuMemGetInfo_v2(size_t *free, size_t *total) { *free = 15UL << 30; *total = 16UL << 30; return 0; }

/* Built with -DNVML as libnvidia-ml.so.1. */
#ifdef NVML
EXPORT res nvmlDeviceGetMemoryInfo(void *device, uint64_t *memory) { memory[0] = 16UL << 30; return 0; }
#endif

/* The action of kernel `1`, and of the first free of address `noop_freed`: a test runs code inside the driver. */
EXPORT void (*noop_inside)(void);
EXPORT uint64_t noop_freed;
static res inside(void) {
    if (noop_inside) noop_inside();
    return 999;
}

EXPORT res cuMemFree_v2(uint64_t address) {
    if (!noop_freed || address != noop_freed) return 0;
    noop_freed = 0;
    return inside();
}
EXPORT res cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *f, size_t (*by_size)(int), size_t shared, int limit) {
    return by_size(32) + 1;
}
EXPORT res cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **params, void **extra) {
    return f == (void *)1 ? inside() : 0;
}
EXPORT res cuLaunchKernel_ptsz(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, void *stream, void **params, void **extra) {
    return f == (void *)1 ? inside() : 0;
}

/* Built with -DOTHER_DOORS, cuGetProcAddress returns addresses that dlsym does not return. */
#ifdef OTHER_DOORS
static res init_door(unsigned flags) { return cuInit(flags); }
static res alloc_door(uint64_t *address, size_t bytes) { return cuMemAlloc_v2(address, bytes); }
#define DOOR(door, export) door
#else
#define DOOR(door, export) export
#endif

struct known { const char *name; int since; int per_thread; void *function; };
static const struct known table[] = {
    {"cuInit", 2000, 0, DOOR(init_door, cuInit)},
    {"cuDriverGetVersion", 2020, 0, cuDriverGetVersion},
    {"cuMemAlloc", 2000, 0, cuMemAlloc},
    {"cuMemAlloc", 3020, 0, DOOR(alloc_door, cuMemAlloc_v2)},
    {"cuMemAlloc", 13050, 0, cuMemAlloc_v3},
    {"cuMemFree", 3020, 0, cuMemFree_v2},
    {"cuMemGetInfo", 3020, 0, cuMemGetInfo_v2},
    {"cuLaunchKernel", 4000, 0, cuLaunchKernel},
    {"cuLaunchKernel", 7000, 1, cuLaunchKernel_ptsz},
    {"cuStreamQuery", 2000, 0, cuStreamQuery},
};

EXPORT res cuGetProcAddress(const char *name, void **pfn, int version, uint64_t flags) {
    void *found = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name) && table[i].since <= version && table[i].per_thread <= (flags == 2))
            found = table[i].function;
    *pfn = found;
    return found ? 0 : 500;
}
EXPORT res cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags, int *status) {
    if (!strcmp(name, "cuGetProcAddress")) {
        *pfn = version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
        return 0;
    }
    res answer = cuGetProcAddress(name, pfn, version, flags);
    if (status) *status = answer ? 1 : 0;
    return 0;
}
