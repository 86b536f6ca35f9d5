// No bytes are address 0, and freeing that is nothing; an allocation needs no current context if its stream is named.
#include "app.h"

int main(void) {
    start();
    Any stream, pool;
    Ptr memory = 7;
    unsigned long long used;
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuDeviceGetDefaultMemPool(&pool, 0));
    DO(cuMemAllocAsync(&memory, 0, stream));
    TRUE(memory == 0);
    memory = 7;
    DO(cuMemAllocFromPoolAsync(&memory, 0, pool, stream));
    TRUE(memory == 0);
    DO(cuMemFreeAsync(memory, stream));
    DO(cuMemPoolGetAttribute(pool, 7, &used));
    TRUE(used == 0);

    Any graph; // A capture takes them as well.
    DO(cuStreamBeginCapture_v2(stream, 0));
    DO(cuMemAllocAsync(&memory, 0, stream));
    DO(cuMemFreeAsync(memory, stream));
    DO(cuStreamEndCapture(stream, &graph));

    DO(cuCtxSetCurrent(NULL));
    EXPECT(cuMemAllocAsync(&memory, 4096, NULL), INVALID_CONTEXT);
    DO(cuMemAllocAsync(&memory, 4096, stream));
    DO(cuMemFreeAsync(memory, stream));
    return 0;
}
