// The legacy stream cannot be captured, nor used while a stream that waits for it captures.
#include "app.h"

int main(void) {
    start();
    Any blocking, free_one, graph;
    Ptr memory;
    unsigned word;
    DO(cuStreamCreate(&blocking, 0));
    DO(cuStreamCreate(&free_one, NON_BLOCKING));
    DO(cuMemAlloc_v2(&memory, 4096));
    EXPECT(cuStreamBeginCapture_v2(NULL, GLOBAL), CAPTURE_UNSUPPORTED);

    DO(cuStreamBeginCapture_v2(blocking, RELAXED));
    EXPECT(cuStreamBeginCapture_v2(blocking, RELAXED), ILLEGAL_STATE);
    EXPECT(cuMemsetD32Async(memory, 1, 4, NULL), CAPTURE_IMPLICIT);
    EXPECT(cuStreamEndCapture(blocking, &graph), CAPTURE_INVALIDATED);

    DO(cuStreamBeginCapture_v2(free_one, RELAXED));
    DO(cuMemsetD32Async(memory, 5, 4, NULL));
    DO(cuMemcpyDtoH_v2(&word, memory, 4));
    TRUE(word == 5);
    DO(cuStreamEndCapture(free_one, &graph));
    EXPECT(cuStreamEndCapture(free_one, &graph), ILLEGAL_STATE);
    return 0;
}
