// A multicast object takes no memory and keeps what is bound to it. Never to be run on a GPU that others share.
#include "app.h"

typedef struct { unsigned devices; size_t size; unsigned long long handle_types, flags; } Team;
Result cuDeviceGetAttribute(int *, int, int);
Result cuMulticastCreate(Ptr *, const Team *);
Result cuMulticastAddDevice(Ptr, int);
Result cuMulticastBindMem(Ptr, size_t, Ptr, size_t, size_t, unsigned long long);
Result cuMulticastBindAddr(Ptr, size_t, Ptr, size_t, unsigned long long);
Result cuMulticastUnbind(Ptr, int, size_t, size_t);
Result cuMulticastGetGranularity(size_t *, const Team *, int);

int main(void) {
    Any second, first = start();
    Team props = {.devices = 2, .handle_types = 1};
    Ptr team, mine, theirs, base;
    size_t size, before, before_there;
    int supported;
    DO(cuDeviceGetAttribute(&supported, 132, 0));
    TRUE(supported == 1);
    DO(cuDevicePrimaryCtxRetain(&second, 1));
    DO(cuMulticastGetGranularity(&size, &props, 0));
    props.size = 2 * size;
    before = free_bytes();
    DO(cuCtxSetCurrent(second));
    before_there = free_bytes();
    DO(cuCtxSetCurrent(first));
    DO(cuMulticastCreate(&team, &props));
    TRUE(free_bytes() == before);

    Prop prop = on_device(), there = on_device();
    there.location.id = 1;
    DO(cuMemCreate(&mine, size, &prop, 0));
    DO(cuMemCreate(&theirs, 2 * size, &there, 0));
    DO(cuMulticastAddDevice(team, 0));
    EXPECT(cuMulticastBindMem(team, 0, mine, 0, size, 0), ILLEGAL_STATE); // Not all devices are there yet.
    DO(cuMulticastAddDevice(team, 1));
    EXPECT(cuMulticastAddDevice(team, 1), INVALID_VALUE);
    DO(cuMulticastBindMem(team, 0, mine, 0, size, 0));
    EXPECT(cuMulticastBindMem(team, 0, mine, 0, size, 0), INVALID_VALUE);
    EXPECT(cuMulticastBindMem(team, 2 * size, mine, 0, size, 0), INVALID_VALUE);
    DO(cuMemAddressReserve(&base, 4 * size, 0, 0, 0));
    DO(cuMemMap(base, 2 * size, 0, theirs, 0));
    DO(cuMulticastBindAddr(team, 0, base, 2 * size, 0));
    DO(cuMemUnmap(base, 2 * size));
    DO(cuMemRelease(theirs));
    DO(cuMemRelease(mine));
    TRUE(before - free_bytes() == size); // The bindings keep them.
    DO(cuCtxSetCurrent(second));
    TRUE(before_there - free_bytes() == 2 * size);
    EXPECT(cuMulticastUnbind(team, 1, 0, size), INVALID_VALUE); // Only what was bound.
    DO(cuMulticastUnbind(team, 1, 0, 2 * size));
    TRUE(before_there == free_bytes());
    DO(cuCtxSetCurrent(first));

    DO(cuMemMap(base, 2 * size, 0, team, 0)); // A mapping keeps the object, and with it what is bound.
    DO(cuMemRelease(team));
    TRUE(before - free_bytes() == size);
    DO(cuMemUnmap(base, 2 * size));
    TRUE(before == free_bytes());
    EXPECT(cuMulticastUnbind(team, 0, 0, size), INVALID_VALUE);
    return 0;
}
