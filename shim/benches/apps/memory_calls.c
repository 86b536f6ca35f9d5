/* Measures the driver's memory calls: prints `name nanoseconds`, the best of several rounds each. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef unsigned long long u64;
enum { CALLS = 200000, ROUNDS = 15 };

static int (*alloc)(u64 *, size_t), (*release)(u64), (*info)(size_t *, size_t *);

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

#define BEST(name, body) do { \
        double best = 1e18; \
        for (int round = 0; round < ROUNDS; round++) { \
            double start = now(); \
            for (int i = 0; i < CALLS; i++) { body; } \
            double each = (now() - start) / CALLS; \
            best = each < best ? each : best; \
        } \
        printf("%s %.2f\n", name, best); \
        fflush(stdout); \
    } while (0)

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!driver) return 2;
    alloc = dlsym(driver, "cuMemAlloc_v2");
    release = dlsym(driver, "cuMemFree_v2");
    info = dlsym(driver, "cuMemGetInfo_v2");
    if (((int (*)(unsigned))dlsym(driver, "cuInit"))(0)) return 3;
    ((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    ((int (*)(void *))dlsym(driver, "cuCtxSetCurrent"))(context);
    u64 dptr, live = 0;
    size_t free, total;
    for (u64 want = 0; want <= 100000; want = want ? want * 10 : 1000) {
        char name[32];
        for (; live < want; live++)
            if (alloc(&dptr, 512)) return 4;
        snprintf(name, sizeof name, "alloc+free@%llu", want);
        BEST(name, if (alloc(&dptr, 512) || release(dptr)) exit(5));
    }
    BEST("cuMemGetInfo", if (info(&free, &total)) exit(6));
    return 0;
}
