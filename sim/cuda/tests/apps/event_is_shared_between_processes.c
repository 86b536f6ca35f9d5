// An event of another process: waited for by the host and in a stream, recorded by either side.
#include "wire.h"
#include <semaphore.h>

enum { NO_TIMING = 2, INTERPROCESS = 4, MAP_FAILED = 205, NOT_READY = 600 };

static sem_t gate;
static void wait_at_gate(void *unused) {
    (void)unused;
    sem_wait(&gate);
}

static void give(void) {
    start();
    Any stream, event, plain, same;
    IpcHandle handle, next;
    char byte;
    sem_init(&gate, 0, 0);
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    EXPECT(cuEventCreate(&event, INTERPROCESS), INVALID_VALUE); // Only without times.
    DO(cuEventCreate(&plain, NO_TIMING));
    EXPECT(cuIpcGetEventHandle(&handle, plain), INVALID_HANDLE);
    DO(cuEventCreate(&event, NO_TIMING | INTERPROCESS));
    DO(cuIpcGetEventHandle(&handle, event));
    EXPECT(cuIpcOpenEventHandle(&same, handle), INVALID_CONTEXT); // Its own.
    DO(cuEventQuery(event));
    DO(cuLaunchHostFunc(stream, wait_at_gate, NULL));
    DO(cuEventRecord(event, stream));
    EXPECT(cuEventQuery(event), NOT_READY);
    tell(1, &handle, sizeof handle);
    hear(1, &byte, 1); // The other side has seen that it is not ready.
    sem_post(&gate);
    hear(1, &byte, 1); // It has recorded the event itself.
    DO(cuEventSynchronize(event));
    DO(cuStreamSynchronize(stream));
    DO(cuEventDestroy_v2(event));
    DO(cuEventCreate(&event, NO_TIMING | INTERPROCESS));
    DO(cuIpcGetEventHandle(&next, event));
    TRUE(memcmp(&next, &handle, sizeof next) == 0); // The next event takes the place and the handle.
    DO(cuEventRecord(event, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuEventDestroy_v2(event));
    tell(1, &handle, sizeof handle);
    hear(1, &byte, 1); // The other side has waited for it.
}

static void take(void) {
    start();
    Any one, two, event;
    IpcHandle handle, wrong = {{0}};
    char byte;
    DO(cuStreamCreate(&one, NON_BLOCKING));
    DO(cuStreamCreate(&two, NON_BLOCKING));
    hear(0, &handle, sizeof handle);
    EXPECT(cuIpcOpenEventHandle(&event, wrong), MAP_FAILED);
    DO(cuIpcOpenEventHandle(&event, handle));
    EXPECT(cuEventQuery(event), NOT_READY);
    DO(cuStreamWaitEvent(one, event, 0));
    EXPECT(cuStreamQuery(one), NOT_READY);
    DO(cuStreamQuery(two));
    tell(0, "", 1);
    DO(cuStreamSynchronize(one));
    DO(cuEventSynchronize(event));
    DO(cuEventRecord(event, two));
    tell(0, "", 1);
    hear(0, &handle, sizeof handle);
    DO(cuEventSynchronize(event)); // Destroyed on the other side, good on this one.
    DO(cuEventDestroy_v2(event));
    DO(cuIpcOpenEventHandle(&event, handle)); // Destroyed before it was opened here.
    DO(cuEventSynchronize(event));
    DO(cuEventDestroy_v2(event));
    tell(0, "", 1);
}

int main(void) { return between(give, take); }
