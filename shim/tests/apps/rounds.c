/* Launches rounds as an asynchronous framework does: rounds SECONDS SHORT LONG [N]. A round is N kernels (1) of SHORT
 * microseconds, then one of LONG, then an event. At most three rounds are under way. The program polls the events and never synchronises.
 * Prints "ready" after the first round, and the number of rounds at the end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define UNDER_WAY 3

static void *cuda;
#define CALL(function, ...) ((int (*)())dlsym(cuda, #function))(__VA_ARGS__)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    double seconds = atof(argv[1]);
    int micros[] = {atoi(argv[2]), atoi(argv[3])};
    int shorts = argc > 4 ? atoi(argv[4]) : 1;
    int (*launch)(void *, int, int, int, int, int, int, int, void *, void *, void *);
    void *context, *stream, *events[UNDER_WAY];
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    launch = dlsym(cuda, "cuLaunchKernel");
    if (CALL(cuInit, 0) || CALL(cuDevicePrimaryCtxRetain, &context, 0) || CALL(cuCtxSetCurrent, context)) return 1;
    if (CALL(cuStreamCreate, &stream, 1)) return 2;
    for (int i = 0; i < UNDER_WAY; i++) if (CALL(cuEventCreate, &events[i], 2)) return 3;
    long rounds = 0;
    for (double until = now() + seconds; now() < until; rounds++) {
        void *event = events[rounds % UNDER_WAY];
        while (rounds >= UNDER_WAY && CALL(cuEventQuery, event)) usleep(20);
        for (int i = 0; i <= shorts; i++) if (launch(0, micros[i == shorts], 1, 1, 1, 1, 1, 0, stream, 0, 0)) return 4;
        if (CALL(cuEventRecord, event, stream)) return 5;
        if (!rounds) { puts("ready"); fflush(stdout); }
    }
    printf("rounds %ld\n", rounds);
    return 0;
}
