/* A driver that does nothing, as fast as possible: the times measured on it are the preload library's. */
#include <stdint.h>
#include <string.h>

typedef unsigned long long u64;

static u64 next = 0x7f0000000000ull, freed[64];
static unsigned count;

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDriverGetVersion(int *version) { return *version = 12090, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal ? 101 : 0; }
int cuDeviceGetName(char *name, int length, int device) { return strncpy(name, "No-op device", length), device; }
int cuDeviceGetUuid(unsigned char *uuid, int device) { return memset(uuid, 7, 16), device; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return memset(uuid, 7, 16), device; }
int cuDeviceGetAttribute(int *value, unsigned attribute, int device) { return *value = 0, (void)attribute, device; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)1 << 40, device; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)0x1000, device; }
int cuCtxSetCurrent(void *context) { return (void)context, 0; }
int cuCtxGetCurrent(void **context) { return *context = (void *)0x1000, 0; }
int cuCtxGetDevice(int *device) { return *device = 0, 0; }

/* The last freed address is used first, as in an allocator. */
int cuMemAlloc_v2(u64 *dptr, size_t bytes) {
    if (count) return *dptr = freed[--count], 0;
    *dptr = next;
    next += (bytes + 511) & ~(size_t)511;
    return 0;
}
int cuMemFree_v2(u64 dptr) {
    if (count < 64) freed[count++] = dptr;
    return 0;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) { return *free = (size_t)1 << 39, *total = (size_t)1 << 40, 0; }
