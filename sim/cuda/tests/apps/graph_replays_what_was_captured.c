// The same work, done at once and captured; the captured work is done at each launch and not before.
#include "app.h"

enum { COUNT = 1024 };

static void work(Any stream, Ptr from, Ptr to, const unsigned *input) {
    DO(cuMemcpyHtoDAsync_v2(from, input, COUNT * 4, stream));
    DO(cuMemcpyDtoDAsync_v2(to, from, COUNT * 4, stream));
    DO(cuMemsetD32Async(to, 7, COUNT / 2, stream));
}

int main(void) {
    start();
    Any stream, graph, exec;
    Ptr from, to;
    unsigned *input, eager[COUNT], replayed[COUNT];
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuMemAlloc_v2(&from, COUNT * 4));
    DO(cuMemAlloc_v2(&to, COUNT * 4));
    DO(cuMemHostAlloc((void **)&input, COUNT * 4, 0));
    for (unsigned i = 0; i < COUNT; i++) input[i] = i * i;

    work(stream, from, to, input);
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(eager, to, COUNT * 4));
    DO(cuMemsetD32_v2(to, 0, COUNT));
    DO(cuCtxSynchronize());

    DO(cuStreamBeginCapture_v2(stream, GLOBAL));
    work(stream, from, to, input);
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(replayed, to, COUNT * 4));
    TRUE(replayed[COUNT - 1] == 0); // Capturing does nothing.

    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphDestroy(graph));
    for (int launch = 0; launch < 3; launch++) {
        input[COUNT - 1] = launch; // The graph copies what is there when it runs.
        DO(cuGraphLaunch(exec, stream));
        DO(cuStreamSynchronize(stream));
        DO(cuMemcpyDtoH_v2(replayed, to, COUNT * 4));
        TRUE(memcmp(eager, replayed, (COUNT - 1) * 4) == 0);
        TRUE(replayed[COUNT - 1] == (unsigned)launch);
    }
    DO(cuGraphExecDestroy(exec));
    EXPECT(cuGraphLaunch(exec, stream), INVALID_VALUE);
    return 0;
}
