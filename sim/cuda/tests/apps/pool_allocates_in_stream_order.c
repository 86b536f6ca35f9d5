// Freed memory is its own stream's at once, others' when the stream has come to the free; a pool has a limit.
#include "app.h"
#include <semaphore.h>

// Whether another stream may get memory whose free has yet to come, and wait for it.
enum { REUSE_BY_WAITING = 3 };

static sem_t gate;
static void wait_at_gate(void *unused) {
    (void)unused;
    sem_wait(&gate);
}

int main(void) {
    start();
    Any one, two, pool, current;
    Ptr first, same, other, more;
    const size_t size = 32 << 20; // A driver was seen to exceed a smaller limit; its rule is not known.
    PoolProps props = {.type = 1, .location = {1, 0}, .max_size = size};
    sem_init(&gate, 0, 0);
    DO(cuStreamCreate(&one, NON_BLOCKING));
    DO(cuStreamCreate(&two, NON_BLOCKING));
    DO(cuMemPoolCreate(&pool, &props));
    int off = 0;
    DO(cuMemPoolSetAttribute(pool, REUSE_BY_WAITING, &off));
    DO(cuDeviceSetMemPool(0, pool));
    DO(cuDeviceGetMemPool(&current, 0));
    TRUE(current == pool);

    DO(cuMemAllocAsync(&first, size, one));
    EXPECT(cuMemAllocAsync(&more, 1, one), OUT_OF_MEMORY); // The pool's own limit.
    DO(cuLaunchHostFunc(one, wait_at_gate, NULL));
    DO(cuMemFreeAsync(first, one));
    EXPECT(cuMemFreeAsync(first, one), INVALID_VALUE);
    EXPECT(cuMemAllocAsync(&other, size, two), OUT_OF_MEMORY); // Stream one has not come to the free.
    DO(cuMemAllocAsync(&same, size, one));
    TRUE(same == first);
    DO(cuMemFreeAsync(same, one));
    sem_post(&gate);
    DO(cuStreamSynchronize(one));
    DO(cuMemAllocAsync(&other, size, two));

    DO(cuMemPoolDestroy(pool)); // What is allocated from it stays good.
    DO(cuMemsetD32Async(other, 1, size / 4, two));
    DO(cuMemFreeAsync(other, two));
    DO(cuCtxSynchronize());
    EXPECT(cuMemAllocFromPoolAsync(&more, 1, pool, one), INVALID_VALUE);
    DO(cuMemAllocAsync(&more, 1, one)); // From the default pool again.
    DO(cuMemFree_v2(more));
    return 0;
}
