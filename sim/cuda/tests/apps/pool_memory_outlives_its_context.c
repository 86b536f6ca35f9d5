// A pool's memory belongs to the device: neither the end of a context nor a reset of the primary one frees it.
#include "app.h"

int main(void) {
    start();
    Any pool, context, stream, own;
    Ptr in_own, in_primary, plain;
    unsigned long long used;
    PoolProps props = {.type = 1, .location = {1, 0}};
    DO(cuMemPoolCreate(&pool, &props));
    DO(cuMemAllocFromPoolAsync(&in_primary, 4096, pool, NULL));
    DO(cuCtxCreate_v2(&own, 0, 0));
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuMemAllocFromPoolAsync(&in_own, 4096, pool, stream));
    DO(cuMemAlloc_v2(&plain, 4096));
    DO(cuStreamSynchronize(stream));
    DO(cuCtxDestroy_v2(own));

    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
    EXPECT(cuMemFree_v2(plain), INVALID_VALUE); // It went with its context.
    DO(cuMemPoolGetAttribute(pool, 7, &used));
    TRUE(used == 8192);
    DO(cuMemsetD32_v2(in_own, 1, 1024));
    DO(cuMemFree_v2(in_own));

    DO(cuDevicePrimaryCtxReset_v2(0));
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
    DO(cuMemPoolGetAttribute(pool, 7, &used));
    TRUE(used == 4096);
    DO(cuMemFree_v2(in_primary));
    return 0;
}
