// One physical allocation mapped twice shows the same bytes, and lives as long as it is mapped.
#include "app.h"

int main(void) {
    start();
    Prop prop = on_device();
    size_t size;
    DO(cuMemGetAllocationGranularity(&size, &prop, 0));
    size_t before = free_bytes();
    Ptr handle, again, base;
    unsigned long long flags;
    char text[16];
    DO(cuMemCreate(&handle, size, &prop, 0));
    TRUE(before - free_bytes() == size);
    DO(cuMemAddressReserve(&base, 4 * size, 0, 0, 0));
    EXPECT(cuMemMap(base, size / 2, 0, handle, 0), NOT_SUPPORTED); // Only the whole of it can be mapped.
    EXPECT(cuMemMap(base, 2 * size, 0, handle, 0), NOT_SUPPORTED);
    EXPECT(cuMemMap(base, size, size, handle, 0), NOT_SUPPORTED);
    EXPECT(cuMemMap(base + 1, size, 0, handle, 0), INVALID_VALUE);
    EXPECT(cuMemcpyHtoD_v2(base, text, 4), INVALID_VALUE); // Reserved is not yet memory.
    DO(cuMemMap(base, size, 0, handle, 0));
    DO(cuMemMap(base + size, size, 0, handle, 0));
    EXPECT(cuMemMap(base, size, 0, handle, 0), INVALID_VALUE);
    DO(cuMemGetAccess(&flags, &prop.location, base));
    TRUE(flags == 0);
    EXPECT(cuMemsetD32_v2(base, 0, 1), INVALID_VALUE); // No device may reach it.
    Access access = {prop.location, 3};
    DO(cuMemSetAccess(base, 2 * size, &access, 1));
    DO(cuMemGetAccess(&flags, &prop.location, base + size));
    TRUE(flags == 3);

    DO(cuMemRelease(handle)); // Its mappings keep it.
    TRUE(before - free_bytes() == size);
    DO(cuMemcpyHtoD_v2(base + 100, "same bytes", 11));
    DO(cuMemcpyDtoH_v2(text, base + size + 100, 11));
    TRUE(strcmp(text, "same bytes") == 0);
    DO(cuMemRetainAllocationHandle(&again, (void *)(base + size)));
    DO(cuMemRelease(again));

    EXPECT(cuMemAddressFree(base, 4 * size), INVALID_VALUE);
    DO(cuMemUnmap(base, size));
    EXPECT(cuMemcpyDtoH_v2(text, base + 100, 11), INVALID_VALUE);
    TRUE(before - free_bytes() == size);
    DO(cuMemUnmap(base + size, size));
    TRUE(free_bytes() == before);
    DO(cuMemAddressFree(base, 4 * size));
    EXPECT(cuMemRelease(again), INVALID_VALUE);
    return 0;
}
