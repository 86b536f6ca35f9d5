// Nodes and edges by hand: order, children, clones, changing and switching off a node, circles.
#include "app.h"

static unsigned calls;
static void count(void *by) { calls += *(unsigned *)by; }

static Fill words(Ptr to, unsigned value, size_t width) {
    Fill fill = {.to = to, .value = value, .element = 4, .width = width, .height = 1};
    return fill;
}

int main(void) {
    Any context = start();
    Any stream, graph, child, clone, exec, first, second, third, inner, copy;
    Ptr memory;
    unsigned now[4], by = 5;
    struct { int result; Any node, from; } info;
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuMemAlloc_v2(&memory, 16));
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphCreate(&child, 0));

    Fill fill = words(memory, 1, 4);
    DO(cuGraphAddMemsetNode(&first, graph, NULL, 0, &fill, context));
    HostCall call = {count, &by};
    DO(cuGraphAddHostNode(&inner, child, NULL, 0, &call));
    DO(cuGraphAddChildGraphNode(&second, graph, &first, 1, child));
    DO(cuGraphDestroy(child)); // The node has a copy.
    fill = words(memory, 2, 2);
    DO(cuGraphAddMemsetNode(&third, graph, &second, 1, &fill, context));

    DO(cuGraphClone(&clone, graph));
    DO(cuGraphNodeFindInClone(&copy, third, clone));
    TRUE(copy != third);
    DO(cuGraphAddDependencies(clone, &copy, &copy, 0));
    Any back;
    DO(cuGraphNodeFindInClone(&back, first, clone));
    DO(cuGraphAddDependencies(clone, &copy, &back, 1));
    EXPECT(cuGraphInstantiateWithFlags(&exec, clone, 0), INVALID_VALUE); // A circle.
    DO(cuGraphDestroy(clone));

    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(now, memory, 16));
    TRUE(calls == 5 && now[0] == 2 && now[1] == 2 && now[2] == 1);

    fill = words(memory, 9, 4);
    DO(cuGraphExecMemsetNodeSetParams(exec, first, &fill, context));
    DO(cuGraphNodeSetEnabled(exec, third, 0));
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(now, memory, 16));
    TRUE(calls == 10 && now[0] == 9 && now[3] == 9);

    DO(cuGraphExecUpdate_v2(exec, graph, &info));
    TRUE(info.result == 0);
    DO(cuGraphAddEmptyNode(&copy, graph, NULL, 0));
    EXPECT(cuGraphExecUpdate_v2(exec, graph, &info), GRAPH_UPDATE_FAILURE);
    TRUE(info.result == 2); // The topology changed.
    return 0;
}
