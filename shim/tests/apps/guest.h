/* The steps of every managed program: find the driver, make a context, launch. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_t launch;
static int (*set)(void *);
static void *ctx;

static int start(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) return printf("%s\n", dlerror()), 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    set = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    launch = (launch_t)dlsym(cuda, "cuLaunchKernel");
    int answer = init(0);
    return answer ? answer : retain(&ctx, 0) | set(ctx);
}
static int launches(int n) {
    int answer = 0;
    // Without a context cuInit has failed, and its code is the answer.
    for (int i = 0; i < n && ctx; i++) answer |= launch(0, 10, 1, 1, 1, 1, 1, 0, NULL, 0, 0);
    return answer;
}
