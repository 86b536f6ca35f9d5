// During a global capture, calls that synchronise or are unsafe fail, and the capture comes to nothing.
#include "app.h"

static Any stream, other, event, outside;
static Ptr memory;

static Result synchronise_stream(void) { return cuStreamSynchronize(stream); }
static Result query_stream(void) { return cuStreamQuery(stream); }
static Result synchronise_context(void) { return cuCtxSynchronize(); }
static Result synchronise_event(void) { return cuEventSynchronize(event); }
static Result query_event(void) { return cuEventQuery(event); }
static Result allocate(void) {
    Ptr more;
    return cuMemAlloc_v2(&more, 4096);
}
static Result release(void) { return cuMemFree_v2(memory); }
static Result wait_for_uncaptured(void) { return cuStreamWaitEvent(stream, outside, 0); }

static void forbidden(const char *name, Result (*call)(void), Result wanted) {
    Any graph = (Any)1;
    int status;
    DO(cuStreamBeginCapture_v2(stream, GLOBAL));
    DO(cuMemsetD32Async(memory, 1, 4, stream));
    DO(cuEventRecord(event, stream));
    expect_at(__LINE__, name, call(), wanted);
    DO(cuStreamIsCapturing(stream, &status));
    TRUE(status == 2);
    EXPECT(cuMemsetD32Async(memory, 1, 4, stream), CAPTURE_INVALIDATED);
    EXPECT(cuStreamEndCapture(stream, &graph), CAPTURE_INVALIDATED);
    TRUE(graph == NULL);
    DO(cuStreamIsCapturing(stream, &status));
    TRUE(status == 0);
}

int main(void) {
    start();
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuStreamCreate(&other, NON_BLOCKING));
    DO(cuEventCreate(&event, 0));
    DO(cuEventCreate(&outside, 0));
    DO(cuMemAlloc_v2(&memory, 4096));
#define FORBIDDEN(call, wanted) forbidden(#call, call, wanted)
    FORBIDDEN(synchronise_stream, CAPTURE_UNSUPPORTED);
    FORBIDDEN(query_stream, CAPTURE_UNSUPPORTED);
    FORBIDDEN(synchronise_context, CAPTURE_UNSUPPORTED);
    FORBIDDEN(synchronise_event, CAPTURED_EVENT);
    FORBIDDEN(query_event, CAPTURED_EVENT);
    FORBIDDEN(allocate, CAPTURE_UNSUPPORTED);
    FORBIDDEN(release, CAPTURE_UNSUPPORTED);
    // An event that was never recorded is nothing to wait for.
    Any graph;
    DO(cuStreamBeginCapture_v2(stream, GLOBAL));
    DO(wait_for_uncaptured());
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuGraphDestroy(graph));
    DO(cuEventRecord(outside, other));
    FORBIDDEN(wait_for_uncaptured, CAPTURE_ISOLATION);
    // Nothing of it lasts.
    DO(cuMemsetD32Async(memory, 1, 4, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemFree_v2(memory));
    return 0;
}
