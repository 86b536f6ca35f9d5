// Pools of pinned and of managed memory, wherever they may be: made, asked for, set, and allocated from.
#include "app.h"

enum { PINNED = 1, MANAGED = 2 };
enum { NOWHERE = 0, ON_DEVICE = 1, ON_HOST = 2, ON_NODE = 3, ON_CURRENT_NODE = 4 };
enum { ALLOCATION_TYPE = 9, HANDLE_TYPES, LOCATION_ID, LOCATION_TYPE };
enum { MEMORY_TYPE = 2, IS_MANAGED = 8 }; // of a pointer

static const size_t SIZE = 1 << 16;

static int pool_attribute(Any pool, int which) {
    int value = -9;
    DO(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

static unsigned pointer_attribute(Ptr memory, int which) {
    unsigned value = 9;
    DO(cuPointerGetAttribute(&value, which, memory));
    return value;
}

// What is allocated from a pool can be written by the host, copied by the device if it is managed, and freed in either way.
static void use(Any pool, Any stream, int type) {
    Ptr one, two;
    char text[8];
    unsigned long long used;
    DO(cuMemAllocFromPoolAsync(&one, SIZE, pool, stream));
    DO(cuMemAllocFromPoolAsync(&two, SIZE, pool, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemPoolGetAttribute(pool, 7, &used));
    TRUE(used == 2 * SIZE);
    TRUE(pointer_attribute(one, IS_MANAGED) == (type == MANAGED));
    TRUE(pointer_attribute(one, MEMORY_TYPE) == (type == MANAGED ? DEVICE : HOST));
    strcpy((char *)one, "written");
    if (type == PINNED) {
        // Not memory of the device, and the pool has let no device in.
        EXPECT(cuMemcpyDtoDAsync_v2(two, one, 8, stream), INVALID_VALUE);
    } else {
        DO(cuMemcpyDtoDAsync_v2(two, one, 8, stream));
        DO(cuMemcpyDtoHAsync_v2(text, two, 8, stream));
        DO(cuStreamSynchronize(stream));
        TRUE(strcmp(text, "written") == 0);
    }
    DO(cuMemFreeAsync(one, stream));
    DO(cuMemFree_v2(two));
    DO(cuStreamSynchronize(stream));
    DO(cuMemPoolGetAttribute(pool, 7, &used));
    TRUE(used == 0);
}

int main(void) {
    start();
    Any stream, pool, own, current;
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    const struct { int type; Location at; } places[] = {
        {PINNED, {ON_HOST, 0}}, {PINNED, {ON_NODE, 0}},
        {MANAGED, {NOWHERE, 0}}, {MANAGED, {ON_DEVICE, 0}}, {MANAGED, {ON_HOST, 0}}, {MANAGED, {ON_NODE, 0}},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int type = places[i].type;
        const Location at = places[i].at;
        DO(cuMemGetDefaultMemPool(&own, &at, type));
        use(own, stream, type);
        PoolProps props = {.type = type, .location = at};
        DO(cuMemPoolCreate(&pool, &props));
        TRUE(pool_attribute(pool, ALLOCATION_TYPE) == type && pool_attribute(pool, LOCATION_TYPE) == at.type);
        use(pool, stream, type);
        DO(cuMemGetMemPool(&current, &at, type));
        TRUE(current == own);
        DO(cuMemSetMemPool(&at, type, pool));
        DO(cuMemGetMemPool(&current, &at, type));
        TRUE(current == pool);
        DO(cuMemPoolDestroy(pool)); // The default one again.
        DO(cuMemGetMemPool(&current, &at, type));
        TRUE(current == own);
        EXPECT(cuMemPoolDestroy(own), INVALID_VALUE);
    }

    // What there is none of.
    const struct { int type, handle_types; Location at; } wrong[] = {
        {PINNED, 0, {NOWHERE, 0}}, {PINNED, 0, {ON_CURRENT_NODE, 0}}, {PINNED, 0, {ON_NODE, 99}}, {0, 0, {ON_DEVICE, 0}},
        {PINNED, 0, {ON_DEVICE, 99}}, {PINNED, 1, {ON_HOST, 0}}, {MANAGED, 1, {ON_DEVICE, 0}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        PoolProps props = {.type = wrong[i].type, .handle_types = wrong[i].handle_types, .location = wrong[i].at};
        EXPECT(cuMemPoolCreate(&pool, &props), INVALID_VALUE);
    }
    Location device = {ON_DEVICE, 0}, host = {ON_HOST, 0};
    EXPECT(cuMemGetDefaultMemPool(&pool, &device, 0), INVALID_VALUE);
    DO(cuMemGetDefaultMemPool(&own, &host, PINNED));
    EXPECT(cuMemSetMemPool(&device, PINNED, own), INVALID_VALUE); // It is somewhere else.

    // What is pinned on the host is the host's to reach; what is managed is every device's.
    int flags;
    DO(cuMemPoolGetAccess(&flags, own, &host));
    TRUE(flags == 3);
    DO(cuMemGetDefaultMemPool(&own, &device, MANAGED));
    DO(cuMemPoolGetAccess(&flags, own, &device));
    TRUE(flags == 3);
    return 0;
}
