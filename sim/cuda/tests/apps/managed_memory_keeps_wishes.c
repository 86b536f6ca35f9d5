// Advice and prefetches of managed memory are checked and told, and end with the allocation.
#include "app.h"

enum { READ_MOSTLY = 1, PREFERRED, ACCESSED_BY, LAST_PREFETCH, PREFERRED_TYPE, PREFERRED_ID };
enum { CPU = -1, NO_DEVICE = -2 };

static int attribute(Ptr memory, int which) {
    int value = 99;
    DO(cuMemRangeGetAttribute(&value, sizeof value, which, memory, 4096));
    return value;
}

int main(void) {
    start();
    Any stream;
    Ptr memory, linear;
    const size_t size = 1 << 20;
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    EXPECT(cuMemAllocManaged(&memory, size, 0), INVALID_VALUE);
    DO(cuMemAllocManaged(&memory, size, 1));
    *(volatile int *)memory = 5; // The host reaches it.
    TRUE(attribute(memory, READ_MOSTLY) == 0 && attribute(memory, PREFERRED) == NO_DEVICE);

    DO(cuMemAdvise(memory, size, 1, 0));
    DO(cuMemAdvise(memory, size, 3, CPU));
    int count;
    DO(cuDeviceGetCount(&count));
    const int accessor = count > 1; // The second device, where there is one.
    DO(cuMemAdvise(memory, size, 5, accessor));
    DO(cuMemPrefetchAsync(memory, size, 0, stream));
    TRUE(attribute(memory, READ_MOSTLY) == 1 && attribute(memory, PREFERRED) == CPU);
    TRUE(attribute(memory, LAST_PREFETCH) == 0 && attribute(memory, PREFERRED_TYPE) == 2);
    int devices[3];
    DO(cuMemRangeGetAttribute(devices, sizeof devices, ACCESSED_BY, memory, size));
    TRUE(devices[0] == accessor && devices[1] == NO_DEVICE && devices[2] == NO_DEVICE);
    DO(cuMemAdvise(memory, size, 5, CPU)); // The host comes last.
    DO(cuMemRangeGetAttribute(devices, sizeof devices, ACCESSED_BY, memory, size));
    TRUE(devices[0] == accessor && devices[1] == CPU && devices[2] == NO_DEVICE);
    DO(cuMemAdvise(memory, size, 4, 0));
    TRUE(attribute(memory, PREFERRED) == NO_DEVICE);

    EXPECT(cuMemAdvise(memory, size, 3, 7), 101); // No such device.
    EXPECT(cuMemAdvise(memory, size, 9, 0), INVALID_VALUE);
    EXPECT(cuMemAdvise(memory, size + 1, 1, 0), INVALID_VALUE);
    EXPECT(cuMemRangeGetAttribute(devices, 8, PREFERRED, memory, size), INVALID_VALUE);
    DO(cuMemAlloc_v2(&linear, size));
    EXPECT(cuMemPrefetchAsync(linear, size, 0, stream), INVALID_VALUE);

    DO(cuMemFree_v2(memory));
    EXPECT(cuMemRangeGetAttribute(devices, 4, PREFERRED, memory, size), INVALID_VALUE);
    DO(cuMemAllocManaged(&memory, size, 1));
    TRUE(attribute(memory, READ_MOSTLY) == 0);
    return 0;
}
