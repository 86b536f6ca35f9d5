// Two devices: which may reach which, in contexts and in pools. With one device, or none that are peers, there is little to see.
#include "app.h"

enum { INVALID_DEVICE = 101, UNSUPPORTED = 217, ALREADY_ENABLED = 704, NOT_ENABLED = 705 };
enum { RANK = 1, ACCESS, ATOMICS, ARRAYS };

int main(void) {
    Any here = start(), there, pool, stream;
    Ptr memory, own;
    int count, can, value, flags;
    DO(cuDeviceGetCount(&count));
    EXPECT(cuDeviceCanAccessPeer(&can, 0, 99), INVALID_DEVICE);
    EXPECT(cuDeviceGetP2PAttribute(&value, ACCESS, 0, 0), INVALID_DEVICE);
    EXPECT(cuCtxEnablePeerAccess(here, 0), UNSUPPORTED);
    if (count < 2) return 0;
    DO(cuDeviceCanAccessPeer(&can, 0, 1));
    DO(cuDeviceGetP2PAttribute(&value, ACCESS, 0, 1));
    TRUE(value == can);
    EXPECT(cuDeviceGetP2PAttribute(&value, 99, 0, 1), INVALID_VALUE);
    if (!can) return 0;

    DO(cuDevicePrimaryCtxRetain(&there, 1));
    EXPECT(cuCtxEnablePeerAccess(there, 1), INVALID_VALUE);
    EXPECT(cuCtxDisablePeerAccess(there), NOT_ENABLED);
    DO(cuCtxEnablePeerAccess(there, 0));
    EXPECT(cuCtxEnablePeerAccess(there, 0), ALREADY_ENABLED);
    DO(cuCtxSetCurrent(there));
    EXPECT(cuCtxDisablePeerAccess(here), NOT_ENABLED); // One way only.
    DO(cuCtxSetCurrent(here));
    DO(cuCtxDisablePeerAccess(there));

    // A pool is its own device's until others are let in; a copy that names both contexts needs no permission.
    const Location one = {1, 1}, zero = {1, 0};
    PoolProps props = {.type = 1, .location = one};
    Access grant = {zero, 3}, revoke = {zero, 0}, wrong = {one, 0};
    DO(cuMemPoolCreate(&pool, &props));
    DO(cuCtxSetCurrent(there));
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuMemAllocFromPoolAsync(&memory, 4096, pool, stream));
    DO(cuMemsetD32Async(memory, 7, 1024, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuCtxSetCurrent(here));
    DO(cuMemAlloc_v2(&own, 4096));
    DO(cuMemPoolGetAccess(&flags, pool, &one));
    TRUE(flags == 3);
    DO(cuMemPoolGetAccess(&flags, pool, &zero));
    TRUE(flags == 0);
    EXPECT(cuMemcpyDtoD_v2(own, memory, 4096), INVALID_VALUE);
    DO(cuMemcpyPeer(own, here, memory, there, 4096));
    DO(cuMemPoolSetAccess(pool, &grant, 1));
    DO(cuMemPoolGetAccess(&flags, pool, &zero));
    TRUE(flags == 3);
    DO(cuMemcpyDtoD_v2(own, memory, 4096));
    DO(cuMemcpyDtoH_v2(&value, own, sizeof value));
    TRUE(value == 7);
    DO(cuMemPoolSetAccess(pool, &revoke, 1));
    EXPECT(cuMemcpyDtoD_v2(own, memory, 4096), INVALID_VALUE);
    EXPECT(cuMemPoolSetAccess(pool, &wrong, 1), INVALID_VALUE); // Its own device's access stays.
    return 0;
}
