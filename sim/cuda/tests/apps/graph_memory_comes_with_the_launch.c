// A graph's allocation has its address before it has memory, and keeps the memory until it is trimmed.
#include "app.h"

static unsigned long long attribute(int which) {
    unsigned long long value;
    DO(cuDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

Result cuGraphUpload(Any, Any);
Result cuGraphDestroyNode(Any);

int main(void) {
    Any context = start();
    Any stream, graph, exec, other, node, fill_node, free_node;
    const size_t size = 4 << 20;
    size_t before = free_bytes();
    unsigned word = 0;
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuGraphCreate(&graph, 0));
    GraphAlloc alloc = {.pool = {.type = 1, .location = {1, 0}}, .bytes = size};
    DO(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    TRUE(alloc.address != 0 && free_bytes() == before);
    Fill fill = {.to = alloc.address, .value = 3, .element = 4, .width = 16, .height = 1};
    DO(cuGraphAddMemsetNode(&fill_node, graph, &node, 1, &fill, context));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    // What allocates is neither copied nor taken apart, and made ready once at a time.
    EXPECT(cuGraphInstantiateWithFlags(&other, graph, 0), NOT_SUPPORTED);
    EXPECT(cuGraphClone(&other, graph), NOT_SUPPORTED);
    EXPECT(cuGraphDestroyNode(node), NOT_SUPPORTED);
    TRUE(attribute(2) == 0); // What a driver takes for the executable itself is not the graph's memory.

    DO(cuGraphUpload(exec, stream)); // Memory comes with this, or with the launch.
    DO(cuStreamSynchronize(stream));
    TRUE(before - free_bytes() >= size && attribute(2) >= size);
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(&word, alloc.address, 4));
    // A driver may take more than is asked for, and call it used until it is trimmed.
    TRUE(word == 3 && before - free_bytes() >= size && attribute(0) >= size);
    EXPECT(cuGraphLaunch(exec, stream), INVALID_VALUE); // It is in use.
    DO(cuMemFreeAsync(alloc.address, stream));
    DO(cuStreamSynchronize(stream));
    TRUE(attribute(2) >= size && before - free_bytes() >= size);
    DO(cuGraphLaunch(exec, stream));
    DO(cuMemFreeAsync(alloc.address, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuDeviceGraphMemTrim(0));
    TRUE(attribute(0) == 0 && attribute(2) == 0 && before - free_bytes() < size);
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));

    // One that frees what it allocates can be launched again and again.
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    fill.to = alloc.address;
    DO(cuGraphAddMemsetNode(&fill_node, graph, &node, 1, &fill, context));
    DO(cuGraphAddMemFreeNode(&free_node, graph, &fill_node, 1, alloc.address));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int launch = 0; launch < 5; launch++) DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    TRUE(before - free_bytes() >= size); // What a destroyed graph has left is kept.
    DO(cuDeviceGraphMemTrim(0));
    TRUE(before - free_bytes() < size);
    return 0;
}
