/* Calls the driver in tight loops and prints `name ns`, the nanoseconds of a call in the best of several rounds:
 * caller [traced]. A traced caller prints "ready", waits for a line, and makes no more launches than a buffer can
 * hold. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>

typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_t launch;
static int (*alloc)(uint64_t *, size_t), (*release)(uint64_t), (*info)(size_t *, size_t *);
static int (*alloc_async)(uint64_t *, size_t, void *), (*release_async)(uint64_t, void *), (*set_context)(void *);
static void *cuda;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void launches(long n) {
    for (long i = 0; i < n; i++) launch((void *)16, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}
static void pairs(long n) {
    for (long i = 0; i < n; i++) {
        uint64_t address;
        alloc(&address, 4096);
        release(address);
    }
}
static void infos(long n) {
    size_t a, b;
    for (long i = 0; i < n; i++) info(&a, &b);
}
static void async_pairs(long n) {
    for (long i = 0; i < n; i++) {
        uint64_t address;
        alloc_async(&address, 4096, NULL);
        release_async(address, NULL);
    }
}
static void contexts(long n) {
    for (long i = 0; i < n; i++) set_context((void *)16);
}
static void lookups(long n) {
    for (long i = 0; i < n; i++) dlsym(cuda, "strlen");
}

static void requests(long n) {
    for (long i = 0; i < n; i++) ioctl(-1, FIONREAD, NULL);
}
static void requests_of_the_driver(long n) {
    char record[48] = {0};
    for (long i = 0; i < n; i++) ioctl(-1, 0xc030462b, record);
}

static void measure(const char *name, void (*body)(long), long n) {
    double best = 1e18;
    body(n / 10 + 1);
    /* Many short rounds: on a busy machine some of them are undisturbed. */
    for (int round = 0; round < 100; round++) {
        double start = now();
        body(n);
        double took = (now() - start) / n;
        if (took < best) best = took;
    }
    printf("%s %.3f\n", name, best);
    fflush(stdout);
}

static long many = 3000000;

static void *body(void *_) {
    launches(many);
    return NULL;
}

int main(int argc, char **argv) {
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) { puts(dlerror()); return 1; }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    launch = (launch_t)dlsym(cuda, "cuLaunchKernel");
    alloc = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    release = (int (*)(uint64_t))dlsym(cuda, "cuMemFree_v2");
    info = (int (*)(size_t *, size_t *))dlsym(cuda, "cuMemGetInfo_v2");
    alloc_async = (int (*)(uint64_t *, size_t, void *))dlsym(cuda, "cuMemAllocAsync");
    release_async = (int (*)(uint64_t, void *))dlsym(cuda, "cuMemFreeAsync");
    set_context = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    if (init(0)) return 1;

    int traced = argc > 1;
    if (traced) {
        many = 100000;
        launches(1);
        puts("ready");
        fflush(stdout);
        getchar();
    }
    measure("launch", launches, traced ? 10000 : 100000);
    for (int threads = 2; threads <= 4; threads *= 2) {
        double best = 1e18;
        for (int round = 0; round < 3; round++) {
            pthread_t ids[4];
            double start = now();
            for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, body, NULL);
            for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
            double took = (now() - start) / many / threads;
            if (took < best) best = took;
        }
        printf("launch_%d %.3f\n", threads, best);
    }
    if (traced) return 0;
    measure("info", infos, 50000);
    measure("context", contexts, 50000);
    measure("dlsym", lookups, 5000);
    measure("request", requests, 20000);
    measure("request_of_driver", requests_of_the_driver, 20000);
    static uint64_t live[100000];
    int held = 0;
    const int steps[] = {0, 1000, 100000};
    for (int i = 0; i < 3; i++) {
        for (; held < steps[i]; held++) alloc(&live[held], 4096);
        char name[32];
        snprintf(name, sizeof name, "pair_%d", steps[i]);
        measure(name, pairs, 10000);
    }
    measure("pair_async", async_pairs, 10000);
    return 0;
}
