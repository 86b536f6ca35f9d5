// A pool made for it is imported by another process, and so are its allocations.
#include "wire.h"

enum { SIZE = 1 << 20 };

static int last_device(void) {
    int count;
    DO(cuDeviceGetCount(&count));
    return count - 1;
}

static void start_there(void) {
    Any context;
    start();
    DO(cuDevicePrimaryCtxRetain(&context, last_device()));
    DO(cuCtxSetCurrent(context));
}

static void give(void) {
    start_there();
    Any stream, pool;
    Ptr memory;
    IpcHandle data;
    PoolProps props = {.type = 1, .handle_types = 1, .location = {1, 0}};
    int descriptor;
    char answer, text[16];
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuDeviceGetDefaultMemPool(&pool, 0));
    EXPECT(cuMemPoolExportToShareableHandle(&descriptor, pool, 1, 0), INVALID_VALUE); // It was not made for it.
    int supported;
    DO(cuDeviceGetAttribute(&supported, 119, 0));
    TRUE(supported & 1); // The device says so.
    props.location.id = last_device();
    DO(cuMemPoolCreate(&pool, &props));
    DO(cuMemPoolExportToShareableHandle(&descriptor, pool, 1, 0));
    DO(cuMemAllocFromPoolAsync(&memory, SIZE, pool, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyHtoD_v2(memory + 4096, "from a pool", 12));
    DO(cuMemPoolExportPointer(&data, memory));
    Any another;
    Ptr elsewhere;
    IpcHandle of_another;
    DO(cuMemPoolCreate(&another, &props));
    DO(cuMemAllocFromPoolAsync(&elsewhere, SIZE, another, stream));
    DO(cuMemPoolExportPointer(&of_another, elsewhere));
    send_descriptor(descriptor);
    tell(1, &data, sizeof data);
    tell(1, &of_another, sizeof of_another);
    hear(1, &answer, 1);
    DO(cuMemcpyDtoH_v2(text, memory, 9));
    TRUE(strcmp(text, "and back") == 0);
    DO(cuMemFreeAsync(memory, stream));
    DO(cuStreamSynchronize(stream));
}

static void sleeps(void *nothing) {
    (void)nothing;
    usleep(50000);
}

static void take(void) {
    start_there();
    Any stream, late, pool;
    Ptr memory, other;
    IpcHandle data, wrong = {{0}};
    char text[16];
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    long descriptor = receive_descriptor();
    hear(0, &data, sizeof data);
    IpcHandle of_another;
    hear(0, &of_another, sizeof of_another);
    size_t before = free_bytes();
    EXPECT(cuMemPoolImportFromShareableHandle(&pool, (void *)0L, 1, 0), INVALID_VALUE); // Some other file.
    DO(cuMemPoolImportFromShareableHandle(&pool, (void *)descriptor, 1, 0));
    int device = 99;
    EXPECT(cuMemPoolGetAttribute(pool, 11, &device), INVALID_VALUE); // Only the process that made it can ask where it is.
    EXPECT(cuMemPoolImportPointer(&memory, pool, &wrong), INVALID_VALUE);
    EXPECT(cuMemPoolImportPointer(&memory, pool, &of_another), INVALID_VALUE); // Of another pool of the same process.
    DO(cuMemPoolImportPointer(&memory, pool, &data));
    TRUE(free_bytes() == before);
    DO(cuMemcpyDtoH_v2(text, memory + 4096, 12));
    TRUE(strcmp(text, "from a pool") == 0);
    DO(cuMemcpyHtoD_v2(memory, "and back", 9));
    EXPECT(cuMemAllocFromPoolAsync(&other, 4096, pool, stream), INVALID_VALUE);
    // A free does not wait for another stream, whose work still reaches the memory.
    DO(cuStreamCreate(&late, NON_BLOCKING));
    DO(cuLaunchHostFunc(late, sleeps, NULL));
    DO(cuMemsetD8Async(memory + 8192, 1, 64, late));
    DO(cuMemFreeAsync(memory, stream));
    DO(cuStreamSynchronize(stream));
    EXPECT(cuMemcpyDtoH_v2(text, memory, 9), INVALID_VALUE);
    DO(cuMemPoolDestroy(pool));
    DO(cuStreamSynchronize(late));
    tell(0, "", 1);
}

int main(void) { return between(give, take); }
