// Another stream joins a capture through an event and has to be joined back.
#include "app.h"

int main(void) {
    start();
    Any one, two, fork, join, graph, exec;
    Ptr memory;
    unsigned words[8];
    size_t count = 0;
    DO(cuStreamCreate(&one, NON_BLOCKING));
    DO(cuStreamCreate(&two, NON_BLOCKING));
    DO(cuEventCreate(&fork, 2));
    DO(cuEventCreate(&join, 2));
    DO(cuMemAlloc_v2(&memory, 32));

    DO(cuStreamBeginCapture_v2(one, GLOBAL));
    DO(cuMemsetD32Async(memory, 1, 8, one));
    DO(cuEventRecord(fork, one));
    DO(cuStreamWaitEvent(two, fork, 0));
    DO(cuMemsetD32Async(memory, 2, 4, two));
    EXPECT(cuStreamEndCapture(two, &graph), CAPTURE_UNMATCHED);
    EXPECT(cuStreamEndCapture(one, &graph), CAPTURE_INVALIDATED);

    DO(cuStreamBeginCapture_v2(one, GLOBAL));
    DO(cuEventRecord(fork, one));
    DO(cuStreamWaitEvent(two, fork, 0));
    DO(cuMemsetD32Async(memory, 2, 4, two));
    EXPECT(cuStreamEndCapture(one, &graph), CAPTURE_UNJOINED);

    DO(cuStreamBeginCapture_v2(one, GLOBAL));
    DO(cuMemsetD32Async(memory, 1, 8, one));
    DO(cuEventRecord(fork, one));
    DO(cuStreamWaitEvent(two, fork, 0));
    DO(cuMemsetD32Async(memory, 2, 4, two));
    DO(cuEventRecord(join, two));
    DO(cuStreamWaitEvent(one, join, 0));
    DO(cuMemsetD32Async(memory, 3, 2, one));
    DO(cuStreamEndCapture(one, &graph));
    DO(cuGraphGetNodes(graph, NULL, &count));
    TRUE(count == 3);

    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphLaunch(exec, two));
    DO(cuStreamSynchronize(two));
    DO(cuMemcpyDtoH_v2(words, memory, 32));
    unsigned wanted[8] = {3, 3, 2, 2, 1, 1, 1, 1};
    TRUE(memcmp(words, wanted, 32) == 0);
    return 0;
}
