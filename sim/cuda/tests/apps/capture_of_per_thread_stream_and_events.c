// A thread's own default stream can be captured, with events that the graph itself records and waits for.
#include "app.h"

static Any event;
static int seen;
static void look(void *unused) {
    (void)unused;
    seen++;
}

int main(void) {
    start();
    Any graph, exec, stream, mine = (Any)2;
    Ptr memory;
    int kinds[3], count[8] = {0};
    size_t nodes = 3;
    Any list[3];
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuEventCreate(&event, 2));
    DO(cuMemAlloc_v2(&memory, 16));
    DO(cuStreamBeginCapture_v2(mine, THREAD_LOCAL));
    DO(cuMemsetD32Async(memory, 1, 4, mine));
    DO(cuLaunchHostFunc(mine, look, NULL));
    DO(cuEventRecordWithFlags(event, mine, 1));
    DO(cuStreamEndCapture(mine, &graph));
    DO(cuGraphGetNodes(graph, list, &nodes));
    TRUE(nodes == 3);
    for (int i = 0; i < 3; i++) {
        DO(cuGraphNodeGetType(list[i], &kinds[i]));
        count[kinds[i]]++;
    }
    TRUE(count[2] == 1 && count[3] == 1 && count[7] == 1);
    DO(cuEventQuery(event)); // Not a captured one: the graph records it when it runs.
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuEventSynchronize(event));
    TRUE(seen == 1);
    return 0;
}
