// SYNC_MEMOPS is off until it is set, for the whole allocation, and ends with it.
#include "app.h"

enum { SYNC_MEMOPS = 6 };

static unsigned is_set(Ptr memory) {
    unsigned value = 9;
    DO(cuPointerGetAttribute(&value, SYNC_MEMOPS, memory));
    return value;
}

int main(void) {
    start();
    Ptr memory;
    const unsigned on = 1, off = 0;
    DO(cuMemAlloc_v2(&memory, 4096));
    TRUE(is_set(memory) == 0);
    DO(cuPointerSetAttribute(&on, SYNC_MEMOPS, memory + 8));
    TRUE(is_set(memory) == 1);
    DO(cuPointerSetAttribute(&off, SYNC_MEMOPS, memory));
    TRUE(is_set(memory) == 0);
    EXPECT(cuPointerSetAttribute(&on, 2, memory), INVALID_VALUE);
    EXPECT(cuPointerSetAttribute(&on, SYNC_MEMOPS, 8), INVALID_VALUE);
    EXPECT(cuPointerSetAttribute(NULL, SYNC_MEMOPS, memory), INVALID_VALUE);
    return 0;
}
