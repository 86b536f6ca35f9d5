/* Works on two devices: together SECONDS together|strange [stay]
 * together: one launch at a time that has a kernel on each device, the second device first.
 * strange:  kernels in a stream of the second device, while a context of the first is current.
 * Prints the number of kernels. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct one { void *function; unsigned gx, gy, gz, bx, by, bz, shared; void *stream; void **params; };
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void check(int code, int line) {
    if (code) { fprintf(stderr, "line %d: %d\n", line, code); exit(1); }
}
#define CHECK(call) check(call, __LINE__)

int main(int argc, char **argv) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = dlsym(cuda, "cuCtxSetCurrent");
    int (*make)(void **, unsigned) = dlsym(cuda, "cuStreamCreate");
    int (*sync)(void *) = dlsym(cuda, "cuStreamSynchronize");
    int (*multi)(struct one *, unsigned, unsigned) = dlsym(cuda, "cuLaunchCooperativeKernelMultiDevice");
    launch_t launch = (launch_t)dlsym(cuda, "cuLaunchKernel");
    int together = !strcmp(argv[2], "together");
    void *contexts[2], *streams[2];
    long kernels = 0;
    CHECK(init(0));
    for (int i = 0; i < 2; i++) {
        CHECK(retain(&contexts[i], i));
        CHECK(set(contexts[i]));
        CHECK(make(&streams[i], 1));
    }
    CHECK(set(contexts[0]));
    double end = now() + atof(argv[1]);
    for (long round = 0; now() < end; round++) {
        struct one list[2];
        memset(list, 0, sizeof list);
        for (int i = 0; i < 2; i++) list[i].gx = 300, list[i].stream = streams[1 - i];
        if (together) CHECK(multi(list, 2, 0)), kernels += 2;
        else CHECK(launch(0, 200, 1, 1, 1, 1, 1, 0, streams[1], 0, 0)), kernels++;
        if (round % 16 == 15) for (int i = 0; i < 2; i++) CHECK(sync(streams[i]));
    }
    printf("kernels %ld\n", kernels);
    fflush(stdout);
    if (argc > 3) getchar(); /* stays alive so that the test can read its state */
    return 0;
}
