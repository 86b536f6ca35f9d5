// A pool keeps freed memory up to its threshold, and trimming gives it back to the device.
#include "app.h"

enum { THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7, USED_HIGH = 8 };

static unsigned long long attribute(Any pool, int which) {
    unsigned long long value = ~0ull;
    DO(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

int main(void) {
    start();
    Any stream, pool;
    Ptr memory;
    const size_t size = 3 << 20;
    size_t before = free_bytes();
    unsigned long long all = ~0ull, zero = 0;
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuDeviceGetDefaultMemPool(&pool, 0));
    EXPECT(cuMemPoolDestroy(pool), INVALID_VALUE);

    // Without a threshold, a synchronisation gives everything back.
    DO(cuMemAllocAsync(&memory, size, stream));
    TRUE(attribute(pool, USED) == size && attribute(pool, RESERVED) >= size);
    TRUE(before - free_bytes() == attribute(pool, RESERVED));
    DO(cuMemFreeAsync(memory, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(attribute(pool, RESERVED) == 0 && free_bytes() == before);

    DO(cuMemPoolSetAttribute(pool, THRESHOLD, &all));
    DO(cuMemAllocAsync(&memory, size, stream));
    DO(cuMemFreeAsync(memory, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(attribute(pool, USED) == 0 && attribute(pool, RESERVED) >= size);
    DO(cuMemPoolTrimTo(pool, attribute(pool, RESERVED)));
    TRUE(free_bytes() < before);
    DO(cuMemPoolTrimTo(pool, 0));
    TRUE(attribute(pool, RESERVED) == 0 && free_bytes() == before);

    TRUE(attribute(pool, USED_HIGH) == size && attribute(pool, RESERVED_HIGH) >= size);
    DO(cuMemPoolSetAttribute(pool, USED_HIGH, &zero));
    TRUE(attribute(pool, USED_HIGH) == 0);
    return 0;
}
