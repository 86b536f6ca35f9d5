// Who may allocate while a stream captures: by the capture's mode, the thread, and the thread's own mode.
#include "app.h"
#include <pthread.h>

static Any context;
static int own_mode;
static Result answer;

static Result allocate(void) {
    Ptr memory;
    Result result = cuMemAlloc_v2(&memory, 4096);
    if (result == OK) EXPECT(cuMemFree_v2(memory), OK);
    return result;
}

static void *elsewhere(void *unused) {
    DO(cuCtxSetCurrent(context));
    int mode = own_mode;
    DO(cuThreadExchangeStreamCaptureMode(&mode));
    TRUE(mode == GLOBAL); // Where each thread starts.
    answer = allocate();
    return unused;
}

static void here(int capture, int own, Result wanted, Result end) {
    Any stream, graph;
    int mode = own;
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuThreadExchangeStreamCaptureMode(&mode));
    DO(cuStreamBeginCapture_v2(stream, capture));
    EXPECT(allocate(), wanted);
    EXPECT(cuStreamEndCapture(stream, &graph), end);
    DO(cuThreadExchangeStreamCaptureMode(&mode));
    TRUE(mode == own);
}

static void there(int capture, int own, Result wanted, Result end) {
    Any stream, graph;
    pthread_t thread;
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuStreamBeginCapture_v2(stream, capture));
    own_mode = own;
    TRUE(pthread_create(&thread, NULL, elsewhere, NULL) == 0);
    TRUE(pthread_join(thread, NULL) == 0);
    EXPECT(answer, wanted);
    EXPECT(cuStreamEndCapture(stream, &graph), end);
}

int main(void) {
    context = start();
    here(GLOBAL, GLOBAL, CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED);
    here(GLOBAL, THREAD_LOCAL, CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED);
    here(GLOBAL, RELAXED, OK, OK);
    here(THREAD_LOCAL, GLOBAL, CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED);
    here(RELAXED, GLOBAL, OK, OK);
    there(GLOBAL, GLOBAL, CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED);
    there(GLOBAL, THREAD_LOCAL, OK, OK);
    there(GLOBAL, RELAXED, OK, OK);
    there(THREAD_LOCAL, GLOBAL, OK, OK);
    there(RELAXED, GLOBAL, OK, OK);
    return 0;
}
