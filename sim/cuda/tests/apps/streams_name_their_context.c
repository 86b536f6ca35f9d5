// Work in a stream with a handle needs no current context (H200, 580.159.04); work in a default stream does.
#include "app.h"

static Result launch(Any kernel, Any stream) { return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL); }

int main(void) {
    start();
    Any stream, graph, exec, module, kernel;
    Ptr from, to;
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuMemAlloc_v2(&from, 4096));
    DO(cuMemAlloc_v2(&to, 4096));
    DO(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry one() { ret; }\n"));
    DO(cuModuleGetFunction(&kernel, module, "one"));
    DO(cuStreamBeginCapture_v2(stream, 0));
    DO(launch(kernel, stream));
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));

    DO(cuCtxSetCurrent(NULL));
    DO(launch(kernel, stream));
    DO(cuMemsetD32Async(from, 7, 1024, stream));
    DO(cuMemcpyDtoDAsync_v2(to, from, 4096, stream));
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    EXPECT(launch(kernel, NULL), INVALID_CONTEXT);
    EXPECT(cuMemsetD32Async(from, 7, 1024, NULL), INVALID_CONTEXT);
    EXPECT(cuMemcpyDtoDAsync_v2(to, from, 4096, NULL), INVALID_CONTEXT);
    EXPECT(cuGraphLaunch(exec, NULL), INVALID_CONTEXT);
    return 0;
}
