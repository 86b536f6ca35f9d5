/* What calls of the driver cost: a launch of an empty kernel, an allocation of 2 MiB with its free, and a query of free memory.
 *
 *     calls SECONDS
 *
 * Prints the medians of rounds of 1 000 calls: launch_ns, alloc_us, info_us. Needs the driver only. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void *handle;
static int (*init)(unsigned), (*retain)(handle *, int), (*set_current)(handle), (*synchronize)(void);
static int (*load)(handle *, const void *), (*function)(handle *, handle, const char *);
static int (*launch_kernel)(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);
static int (*allocate_bytes)(unsigned long long *, size_t), (*free_bytes)(unsigned long long), (*info)(size_t *, size_t *);

enum { CALLS = 1000, ROUNDS = 100000 };
static const char KERNEL[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n";
static handle kernel;
static double times[3][ROUNDS];

static void check(int code) {
    if (code) fprintf(stderr, "driver error %d\n", code), exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void open_driver(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) fprintf(stderr, "%s\n", dlerror()), exit(1);
    init = dlsym(cuda, "cuInit"), retain = dlsym(cuda, "cuDevicePrimaryCtxRetain"), set_current = dlsym(cuda, "cuCtxSetCurrent");
    synchronize = dlsym(cuda, "cuCtxSynchronize"), load = dlsym(cuda, "cuModuleLoadData");
    function = dlsym(cuda, "cuModuleGetFunction"), launch_kernel = dlsym(cuda, "cuLaunchKernel");
    allocate_bytes = dlsym(cuda, "cuMemAlloc_v2"), free_bytes = dlsym(cuda, "cuMemFree_v2"), info = dlsym(cuda, "cuMemGetInfo_v2");
}

static void launch(void) { check(launch_kernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL)); }

static void allocate(void) {
    unsigned long long start;
    check(allocate_bytes(&start, 2 << 20));
    check(free_bytes(start));
}

static void ask(void) {
    size_t free, total;
    check(info(&free, &total));
}

/* Returns the mean time of a call in nanoseconds. */
static double round_of(void (*call)(void)) {
    double began = now();
    for (int n = 0; n < CALLS; n++) call();
    double took = now() - began;
    check(synchronize());
    return took / CALLS;
}

static int ascending(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

int main(int count, char **words) {
    handle context, module;
    if (count < 2) return fprintf(stderr, "usage: calls SECONDS\n"), 2;
    open_driver();
    check(init(0));
    check(retain(&context, 0));
    check(set_current(context));
    check(load(&module, KERNEL));
    check(function(&kernel, module, "empty"));
    puts("ready"), fflush(stdout);
    double end = now() + atof(words[1]) * 1e9;
    int rounds = 0;
    for (; rounds < ROUNDS && (rounds == 0 || now() < end); rounds++) {
        times[0][rounds] = round_of(launch);
        times[1][rounds] = round_of(allocate);
        times[2][rounds] = round_of(ask);
    }
    for (int n = 0; n < 3; n++) qsort(times[n], rounds, sizeof(double), ascending);
    printf("launch_ns=%.1f alloc_us=%.2f info_us=%.3f\n", times[0][rounds / 2], times[1][rounds / 2] / 1e3, times[2][rounds / 2] / 1e3);
}
