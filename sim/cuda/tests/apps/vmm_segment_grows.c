// As an allocator with expandable segments does it: one reservation, mapped piece by piece, used as one range.
#include "app.h"

enum { PIECES = 4 };

int main(void) {
    start();
    Prop prop = on_device();
    Access access = {prop.location, 3};
    size_t size, before = free_bytes();
    Ptr base, handles[PIECES];
    DO(cuMemGetAllocationGranularity(&size, &prop, 1));
    DO(cuMemAddressReserve(&base, 64 * size, 0, 0, 0));
    for (int i = 0; i < PIECES; i++) {
        DO(cuMemCreate(&handles[i], size, &prop, 0));
        DO(cuMemMap(base + i * size, size, 0, handles[i], 0));
        DO(cuMemSetAccess(base + i * size, size, &access, 1));
    }
    TRUE(before - free_bytes() == PIECES * size);
    // Across the pieces' seams.
    DO(cuMemsetD32_v2(base, 0x01020304, PIECES * size / 4));
    unsigned words[2];
    DO(cuMemcpyDtoH_v2(words, base + 2 * size - 4, 8));
    TRUE(words[0] == 0x01020304 && words[1] == 0x01020304);
    EXPECT(cuMemsetD32_v2(base, 0, PIECES * size / 4 + 1), INVALID_VALUE);

    // The middle goes and comes back as zeros.
    DO(cuMemUnmap(base + size, 2 * size));
    DO(cuMemRelease(handles[1]));
    DO(cuMemRelease(handles[2]));
    TRUE(before - free_bytes() == 2 * size);
    DO(cuMemCreate(&handles[1], 2 * size, &prop, 0));
    DO(cuMemMap(base + size, 2 * size, 0, handles[1], 0));
    DO(cuMemSetAccess(base + size, 2 * size, &access, 1));
    DO(cuMemcpyDtoH_v2(words, base + 3 * size - 4, 8));
    TRUE(words[0] == 0 && words[1] == 0x01020304);
    return 0;
}
