// What is queued keeps the memory it works on: of a graph that is destroyed, and of a mapping that is taken away.
#include "app.h"
#include <semaphore.h>
#include <pthread.h>
#include <unistd.h>

static sem_t gate;
static void wait_at_gate(void *unused) {
    (void)unused;
    sem_wait(&gate);
}
static void *open_gate(void *unused) {
    usleep(20000);
    sem_post(&gate);
    return unused;
}

int main(void) {
    Any context = start();
    Any stream, graph, exec, node, after;
    Ptr other, handle, base;
    unsigned words[16];
    pthread_t opener;
    const size_t size = 2 << 20;
    sem_init(&gate, 0, 0);
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuGraphCreate(&graph, 0));
    GraphAlloc alloc = {.pool = {.type = 1, .location = {1, 0}}, .bytes = size};
    DO(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    Fill fill = {.to = alloc.address, .value = 3, .element = 4, .width = size / 4, .height = 1};
    DO(cuGraphAddMemsetNode(&after, graph, &node, 1, &fill, context));
    DO(cuGraphAddMemFreeNode(&node, graph, &after, 1, alloc.address));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuLaunchHostFunc(stream, wait_at_gate, NULL));
    DO(cuGraphLaunch(exec, stream));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    DO(cuMemAlloc_v2(&other, size)); // Not in the graph's place.
    DO(cuMemcpyHtoD_v2(other, "untouched", 10));
    sem_post(&gate);
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(words, other, 10));
    TRUE(strcmp((char *)words, "untouched") == 0);

    Prop prop = on_device();
    Access access = {prop.location, 3};
    DO(cuMemCreate(&handle, size, &prop, 0));
    DO(cuMemAddressReserve(&base, size, 0, 0, 0));
    DO(cuMemMap(base, size, 0, handle, 0));
    DO(cuMemSetAccess(base, size, &access, 1));
    DO(cuLaunchHostFunc(stream, wait_at_gate, NULL));
    DO(cuMemsetD32Async(base, 1, size / 4, stream));
    TRUE(pthread_create(&opener, NULL, open_gate, NULL) == 0);
    DO(cuMemUnmap(base, size));
    EXPECT(cuMemsetD32Async(base, 1, 1, stream), INVALID_VALUE);
    TRUE(pthread_join(opener, NULL) == 0);
    return 0;
}
