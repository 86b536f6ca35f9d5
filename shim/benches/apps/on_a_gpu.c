// What a call costs on a real driver: nanoseconds as "name value" lines. Run bare and preloaded by .ci/gpu.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef unsigned long long Ptr;
typedef struct Handle *Any;
int cuInit(unsigned);
int cuDeviceGet(int *, int);
int cuDevicePrimaryCtxRetain(Any *, int);
int cuCtxSetCurrent(Any);
int cuCtxSynchronize(void);
int cuModuleLoadData(Any *, const void *);
int cuModuleGetFunction(Any *, Any, const char *);
int cuLaunchKernel(Any, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Any, void **, void **);
int cuMemAlloc_v2(Ptr *, size_t);
int cuMemFree_v2(Ptr);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuStreamCreate(Any *, unsigned);
int cuStreamSynchronize(Any);

#define DO(call) do { int code = (call); if (code) { fprintf(stderr, #call ": %d\n", code); exit(1); } } while (0)

static const char EMPTY[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

// The best of several rounds: what disturbs a round only makes it longer.
#define BEST(name, rounds, count, before, body) do { \
    double best = 1e18; \
    for (int round = 0; round < rounds; round++) { \
        before; \
        double began = now(); \
        for (int i = 0; i < count; i++) { body; } \
        double took = (now() - began) / count; \
        if (took < best) best = took; \
    } \
    printf("%s %.1f\n", name, best); \
} while (0)

int main(void) {
    int device;
    Any context, module, function, stream;
    size_t free_bytes, total;
    Ptr pointer;
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    DO(cuModuleLoadData(&module, EMPTY));
    DO(cuModuleGetFunction(&function, module, "nothing"));
    DO(cuStreamCreate(&stream, 1));
    // Fewer launches than the driver's queue takes without waiting.
    BEST("launch", 200, 400, DO(cuStreamSynchronize(stream)),
         DO(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)));
    DO(cuCtxSynchronize());
    BEST("alloc+free 2 MiB", 20, 200, (void)0, DO(cuMemAlloc_v2(&pointer, 2 << 20)); DO(cuMemFree_v2(pointer)));
    BEST("cuMemGetInfo", 20, 200, (void)0, DO(cuMemGetInfo_v2(&free_bytes, &total)));
    return 0;
}
