/* Launches kernels: spinner SECONDS MICROS SYNC_EVERY [ahead N | streams | no-context (in a
 * stream, and none is current) | ptds | graph | capture N | captures |
 * cpu [MS] | sleep MS | twodev | threads (a new one for each kernel) | exec (another program after the first
 * kernel)]
 * Prints "ready" after the first, then one line at the end: the number of kernels and the driver's number of
 * synchronisations. $LAUNCHES ends it after that many kernels. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static void *cuda;
#define GET(name) ((void *)dlsym(cuda, name))

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* One kernel from a thread that then ends. */
static struct { launch_t launch; int (*set)(void *); void *context; unsigned micros; } one;
static void *launch_one(void *unused) {
    int failed = one.set(one.context) || one.launch(0, one.micros, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    return (void *)(intptr_t)failed;
}
static int from_a_thread(void) {
    pthread_t thread;
    void *failed = one.launch;
    if (!pthread_create(&thread, 0, launch_one, 0)) pthread_join(thread, &failed);
    return failed != NULL;
}

int main(int argc, char **argv) {
    double seconds = atof(argv[1]);
    unsigned micros = atoi(argv[2]);
    int every = atoi(argv[3]);
    const char *how = argc > 4 ? argv[4] : "";
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = GET("cuInit");
    int (*retain)(void **, int) = GET("cuDevicePrimaryCtxRetain");
    int (*set)(void *) = GET("cuCtxSetCurrent");
    int (*create)(void **, unsigned) = GET("cuStreamCreate");
    int (*sync)(void *) = GET("cuStreamSynchronize");
    int (*ctx_sync)(void) = GET("cuCtxSynchronize");
    int (*begin)(void *, int) = GET("cuStreamBeginCapture_v2");
    int (*end)(void *, void **) = GET("cuStreamEndCapture");
    int (*graph_launch)(void *, void *) = GET("cuGraphLaunch");
    int (*syncs)(void) = GET("timed_syncs");
    launch_t launch = GET(strcmp(how, "ptds") ? "cuLaunchKernel" : "cuLaunchKernel_ptsz");
    void *ctx[2] = {0}, *streams[8] = {0};
    long kernels = 0;
    if (init(0) || retain(&ctx[0], 0) || set(ctx[0])) return 1;
    int two = !strcmp(how, "twodev");
    if (two && retain(&ctx[1], 1)) return 1;
    int none = !strcmp(how, "no-context");
    int count = !strcmp(how, "streams") ? 8 : none;
    for (int i = 0; i < count; i++) create(&streams[i], 1);
    if (none) set(NULL);
    if (!strcmp(how, "capture")) {
        void *stream, *graph;
        create(&stream, 1);
        int nodes = atoi(argv[5]), before = syncs();
        if (begin(stream, atoi(argv[6]))) return 2;
        for (int i = 0; i < nodes; i++) if (launch(0, micros, 1, 1, 1, 1, 1, 0, stream, 0, 0)) return 3;
        usleep(seconds * 1e6);
        if (end(stream, &graph)) return 4;
        printf("captured %ld, synchronised %d\n", (long)(intptr_t)graph, syncs() - before);
        return graph_launch(graph, stream);
    }
    void *graph = NULL, *recorded = NULL;
    if (!strcmp(how, "graph")) {
        create(&recorded, 1);
        if (begin(recorded, 0)) return 2;
        for (int i = 0; i < 5; i++) if (launch(0, micros, 1, 1, 1, 1, 1, 0, recorded, 0, 0)) return 3;
        if (end(recorded, &graph)) return 4;
    }
    double until = now() + seconds;
    long most = getenv("LAUNCHES") ? atol(getenv("LAUNCHES")) : 0;
    while (most ? kernels < most : now() < until) {
        if (two) set(ctx[kernels & 1]);
        if (graph) {
            if (graph_launch(graph, NULL)) return 5;
        } else if (!strcmp(how, "threads")) {
            one.launch = launch, one.set = set, one.context = ctx[0], one.micros = micros;
            if (from_a_thread()) return 5;
        } else if (launch(0, micros, 1, 1, 1, 1, 1, 0, count ? streams[kernels % count] : NULL, 0, 0)) return 5;
        if (!strcmp(how, "captures")) { /* each kernel is followed by a capture of another stream */
            if (!recorded) create(&recorded, 0);
            if (begin(recorded, 2)) return 2;
            usleep(2000);
            int code = end(recorded, &graph);
            graph = NULL;
            if (code) { printf("capture %ld failed: %d\n", kernels, code); return 4; }
        }
        kernels++;
        if (kernels == 1) { puts("ready"); fflush(stdout); }
        if (!strcmp(how, "exec")) return execlp("sleep", "sleep", "60", NULL);
        if (every && kernels % every == 0) {
            if (two) { set(ctx[0]); ctx_sync(); set(ctx[1]); }
            if (count || !strcmp(how, "ptds") || two) ctx_sync();
            else sync(NULL);
        }
        double pause = argc > 5 ? atof(argv[5]) / 1e3 : seconds / 4;
        if (!strcmp(how, "cpu")) { double t = now() + pause; while (now() < t) {} }
        if (!strcmp(how, "sleep")) usleep(pause * 1e6);
    }
    printf("kernels %ld, synchronised %d\n", kernels, syncs());
    fflush(stdout);
    if (getenv("LINGER")) sleep(atoi(getenv("LINGER")));
    return 0;
}
