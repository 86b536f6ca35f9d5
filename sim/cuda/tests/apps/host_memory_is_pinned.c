// Pinned memory has the same address on the device, takes nothing of it, and is registered once.
#include "app.h"

int main(void) {
    start();
    size_t before = free_bytes();
    void *pinned, *own = malloc(8192);
    Ptr device;
    unsigned word = 42, back = 0;
    DO(cuMemHostAlloc(&pinned, 1 << 20, 0));
    TRUE(free_bytes() == before);
    DO(cuMemHostGetDevicePointer_v2(&device, pinned, 0));
    DO(cuMemsetD32_v2(device, 7, 1));
    TRUE(*(unsigned *)pinned == 7);

    EXPECT(cuMemHostGetDevicePointer_v2(&device, own, 0), INVALID_VALUE);
    DO(cuMemHostRegister_v2(own, 8192, 0));
    EXPECT(cuMemHostRegister_v2((char *)own + 4096, 16, 0), 712);
    DO(cuMemHostGetDevicePointer_v2(&device, own, 0));
    DO(cuMemcpyHtoD_v2(device, &word, 4));
    DO(cuMemcpyDtoH_v2(&back, device, 4));
    TRUE(back == 42);
    EXPECT(cuMemFreeHost(own), INVALID_VALUE);
    DO(cuMemHostUnregister(own));
    EXPECT(cuMemHostUnregister(own), 713);
    DO(cuMemFreeHost(pinned));
    EXPECT(cuMemFreeHost(pinned), INVALID_VALUE);
    DO(cuMemHostAlloc(&pinned, 0, 0)); // No bytes are no address, as for a pool.
    TRUE(pinned == NULL);
    return 0;
}
