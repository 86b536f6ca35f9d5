/* Leaves long work behind where it was not used last: weaver SECONDS contexts|events|foreign|releases|refused|destroyed|captured
 * contexts: a long kernel in one context, then short ones in two others of the same device.
 * events:   a long kernel in a stream, its end an event for which a second stream waits; then short ones in a
 * third.
 * foreign:  a kernel in a stream of a context that is not current and is then destroyed; and one in the current
 * context.
 * releases: a long kernel, then a release of the primary context that is not the last.
 * refused:  a long kernel, then a destruction of the primary context, which the driver refuses.
 * destroyed, captured: a long kernel in a stream that is then destroyed, or captured; then a short one in another.
 * Short rounds, so that a turn may end anywhere. Prints the number of kernels. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_t cuLaunchKernel;
static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxCreate)(void **, unsigned, int);
static int (*cuDevicePrimaryCtxRelease)(int);
static int (*cuCtxSetCurrent)(void *), (*cuCtxSynchronize)(void), (*cuStreamCreate)(void **, unsigned);
static int (*cuStreamWaitEvent)(void *, void *, unsigned), (*cuEventCreate)(void **, unsigned);
static int (*cuCtxDestroy)(void *), (*cuStreamSynchronize)(void *), (*cuStreamDestroy)(void *);
static int (*cuStreamBeginCapture)(void *, int), (*cuStreamEndCapture)(void *, void **);
static int (*cuEventRecord)(void *, void *), (*cuEventSynchronize)(void *), (*cuEventDestroy)(void *);

static void load(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    cuLaunchKernel = (launch_t)dlsym(cuda, "cuLaunchKernel");
    cuInit = dlsym(cuda, "cuInit");
    cuDevicePrimaryCtxRetain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    cuDevicePrimaryCtxRelease = dlsym(cuda, "cuDevicePrimaryCtxRelease_v2");
    cuCtxCreate = dlsym(cuda, "cuCtxCreate_v2");
    cuCtxSetCurrent = dlsym(cuda, "cuCtxSetCurrent");
    cuCtxSynchronize = dlsym(cuda, "cuCtxSynchronize");
    cuCtxDestroy = dlsym(cuda, "cuCtxDestroy_v2");
    cuStreamSynchronize = dlsym(cuda, "cuStreamSynchronize");
    cuStreamCreate = dlsym(cuda, "cuStreamCreate");
    cuStreamDestroy = dlsym(cuda, "cuStreamDestroy_v2");
    cuStreamBeginCapture = dlsym(cuda, "cuStreamBeginCapture_v2");
    cuStreamEndCapture = dlsym(cuda, "cuStreamEndCapture");
    cuStreamWaitEvent = dlsym(cuda, "cuStreamWaitEvent");
    cuEventCreate = dlsym(cuda, "cuEventCreate");
    cuEventRecord = dlsym(cuda, "cuEventRecord");
    cuEventSynchronize = dlsym(cuda, "cuEventSynchronize");
    cuEventDestroy = dlsym(cuda, "cuEventDestroy_v2");
}

static long kernels;
static void *contexts[3], *streams[3];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void check(int code, int line) {
    if (code) { fprintf(stderr, "line %d: %d\n", line, code); exit(1); }
}
#define CHECK(call) check(call, __LINE__)
static void launch(void *stream, unsigned micros) {
    CHECK(cuLaunchKernel(0, micros, 1, 1, 1, 1, 1, 0, stream, 0, 0));
    kernels++;
}

static void round_of_contexts(long round) {
    for (int i = 0; i < 3; i++) {
        CHECK(cuCtxSetCurrent(contexts[(round + i) % 3]));
        /* Created streams and the default stream, alternately. */
        launch(round & 1 ? streams[(round + i) % 3] : NULL, i ? 100 : 3000);
    }
    if (round % 8 == 7) for (int i = 0; i < 3; i++) { CHECK(cuCtxSetCurrent(contexts[i])); CHECK(cuCtxSynchronize()); }
}

static void round_of_events(long round) {
    void *event;
    CHECK(cuEventCreate(&event, 2));
    launch(streams[0], 3000);
    CHECK(cuEventRecord(event, streams[0]));
    CHECK(cuStreamWaitEvent(streams[1], event, 0));
    launch(streams[1], 1000);
    for (int i = 0; i < 4; i++) launch(streams[2], 100);
    if (round % 8 == 7) { CHECK(cuEventRecord(event, streams[1])); CHECK(cuEventSynchronize(event)); }
    CHECK(cuEventDestroy(event));
}

static void round_of_foreign(long round) {
    void *context, *stream;
    CHECK(cuCtxCreate(&context, 0, 0));
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuCtxSetCurrent(contexts[0]));
    launch(stream, 100);
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuCtxDestroy(context));
    launch(NULL, 1000);
}

static void round_of_releases(long round) {
    void *again;
    CHECK(cuDevicePrimaryCtxRetain(&again, 0));
    launch(streams[round % 3], 3000);
    CHECK(cuDevicePrimaryCtxRelease(0));
    if (round % 8 == 7) CHECK(cuCtxSynchronize());
}

static void round_of_refused(long round) {
    launch(streams[round % 3], 3000);
    cuCtxDestroy(contexts[0]);
    if (round % 8 == 7) CHECK(cuCtxSynchronize());
}

static void round_of_destroyed(long round) {
    void *stream;
    CHECK(cuStreamCreate(&stream, 1));
    launch(stream, 3000);
    CHECK(cuStreamDestroy(stream));
    launch(streams[0], 1000);
    CHECK(cuStreamSynchronize(streams[0]));
}

/* The stream 2 is the thread's default stream. */
static void round_of_captured(long round) {
    void *graph, *stream = round % 2 ? streams[1] : (void *)2;
    launch(stream, 3000);
    CHECK(cuStreamBeginCapture(stream, 2));
    CHECK(cuStreamEndCapture(stream, &graph));
    launch(streams[0], 1000);
    CHECK(cuStreamSynchronize(streams[0]));
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int with_contexts = !strcmp(argv[2], "contexts");
    void (*one_round)(long) = with_contexts ? round_of_contexts
        : !strcmp(argv[2], "events") ? round_of_events
        : !strcmp(argv[2], "foreign") ? round_of_foreign
        : !strcmp(argv[2], "destroyed") ? round_of_destroyed
        : !strcmp(argv[2], "captured") ? round_of_captured
        : !strcmp(argv[2], "refused") ? round_of_refused : round_of_releases;
    load();
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&contexts[0], 0));
    for (int i = 0; i < 3; i++) {
        if (i && with_contexts) CHECK(cuCtxCreate(&contexts[i], 0, 0));
        CHECK(cuCtxSetCurrent(contexts[with_contexts ? i : 0]));
        CHECK(cuStreamCreate(&streams[i], 1));
    }
    double until = now() + atof(argv[1]);
    for (long round = 0; now() < until; round++) one_round(round);
    printf("kernels %ld\n", kernels);
    return 0;
}
