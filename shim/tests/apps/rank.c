/* A rank of a training, or a program that keeps a device busy: rank DEVICE STEPS [alone]
 * A step is eight kernels of 5 ms, each followed by a collective of 1 ms with the other rank; the rank synchronises
 * after four steps. With `alone` there are no collectives. Prints "ready" after the first step, and the
 * microseconds of the others. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    int device = atoi(argv[1]), steps = atoi(argv[2]), alone = argc > 3;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *ctx;
    int (*init)(unsigned) = dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = dlsym(cuda, "cuCtxSetCurrent");
    int (*sync)(void *) = dlsym(cuda, "cuStreamSynchronize");
    launch_t launch = dlsym(cuda, "cuLaunchKernel");
    if (init(0) || retain(&ctx, device) || set(ctx)) return 1;
    double began = 0;
    for (int step = 0; step <= steps; step++) {
        for (int kernel = 0; kernel < 8; kernel++) {
            if (launch(0, 5000, 1, 1, 1, 1, 1, 0, 0, 0, 0)) return 2;
            if (launch(0, alone ? 1000 : 1001000, 1, 1, 1, 1, 1, 0, 0, 0, 0)) return 3;
        }
        if (step % 4 == 0 && sync(NULL)) return 4;
        if (step == 0) { began = now(); puts("ready"); fflush(stdout); }
    }
    if (sync(NULL)) return 5;
    printf("took %ld us\n", (long)((now() - began) * 1e6));
    return 0;
}
