// Threads that allocate in every way on a device that is too small for all: no call hangs, nothing is lost.
#include "app.h"
#include <pthread.h>

enum { THREADS = 6, ROUNDS = 100 };

static Any context;

static int allowed(Result result) {
    TRUE(result == OK || result == OUT_OF_MEMORY);
    return result == OK;
}

static void ordered(Any stream, Any pool, size_t bytes) {
    Ptr memory;
    if (!allowed(cuMemAllocFromPoolAsync(&memory, bytes, pool, stream))) return;
    DO(cuMemsetD32Async(memory, 1, bytes / 4, stream));
    DO(cuMemFreeAsync(memory, stream));
}

static void linear(size_t bytes) {
    Ptr memory;
    if (!allowed(cuMemAlloc_v2(&memory, bytes))) return;
    DO(cuMemFree_v2(memory));
}

static void mapped(void) {
    Prop prop = on_device();
    Access access = {prop.location, 3};
    const size_t size = 4 << 20;
    Ptr handle, base;
    if (!allowed(cuMemCreate(&handle, size, &prop, 0))) return;
    DO(cuMemAddressReserve(&base, size, 0, 0, 0));
    DO(cuMemMap(base, size, 0, handle, 0));
    DO(cuMemRelease(handle));
    DO(cuMemSetAccess(base, size, &access, 1));
    DO(cuMemsetD32_v2(base, 2, size / 4));
    DO(cuMemUnmap(base, size));
    DO(cuMemAddressFree(base, size));
}

static void captured(Any stream, size_t bytes) {
    Any graph, exec;
    Ptr memory;
    DO(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    DO(cuMemAllocAsync(&memory, bytes, stream));
    DO(cuMemsetD32Async(memory, 3, bytes / 4, stream));
    DO(cuMemFreeAsync(memory, stream));
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    allowed(cuGraphLaunch(exec, stream));
    allowed(cuGraphLaunch(exec, stream));
    DO(cuGraphDestroy(graph));
    DO(cuStreamSynchronize(stream));
    DO(cuGraphExecDestroy(exec));
}

// Another thread trims between a launch that is on its way and what it allocates.
static void lasting(Any stream, size_t bytes) {
    Any graph, exec, node;
    DO(cuGraphCreate(&graph, 0));
    GraphAlloc alloc = {.pool = {.type = 1, .location = {1, 0}}, .bytes = bytes};
    DO(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int launch = 0; launch < 20; launch++) {
        if (allowed(cuGraphLaunch(exec, stream))) {
            DO(cuStreamSynchronize(stream));
            DO(cuMemFree_v2(alloc.address));
        }
        DO(cuDeviceGraphMemTrim(0));
    }
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
}

static void *work(void *number) {
    unsigned seed = (unsigned)(size_t)number * 2654435761u + 1;
    PoolProps props = {.type = 1, .location = {1, 0}};
    unsigned long long keep = 8 << 20;
    Any stream, pool;
    DO(cuCtxSetCurrent(context));
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuMemPoolCreate(&pool, &props));
    DO(cuMemPoolSetAttribute(pool, 4, &keep));
    for (int round = 0; round < ROUNDS; round++) {
        seed = seed * 1664525 + 1013904223;
        size_t bytes = 4096 + (seed >> 8) % (12 << 20) / 4 * 4;
        switch ((seed >> 4) % 6) {
        case 0: ordered(stream, pool, bytes); break;
        case 1: linear(bytes); break;
        case 2: mapped(); break;
        case 3: captured(stream, bytes); break;
        case 4: DO(cuStreamSynchronize(stream)); break;
        case 5: lasting(stream, bytes); break;
        }
    }
    DO(cuStreamSynchronize(stream));
    DO(cuMemPoolDestroy(pool));
    DO(cuStreamDestroy_v2(stream));
    return NULL;
}

int main(void) {
    context = start();
    size_t before = free_bytes();
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) TRUE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) TRUE(pthread_join(threads[i], NULL) == 0);
    DO(cuDeviceGraphMemTrim(0));
    TRUE(free_bytes() == before);
    return 0;
}
