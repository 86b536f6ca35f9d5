/* Runs random programs on two devices: couples PROGRAMS SEED. Each launches on either device and sometimes waits
 * for a stream or a device; every second one has a thread for each device. Prints the number of programs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_t launch;
static int (*set)(void *), (*stream_sync)(void *), (*ctx_sync)(void);
static void *ctx[2];

/* One thread: `steps` steps, on both devices or only on one. */
struct part { unsigned seed; int steps, only; };
static void *play(void *argument) {
    struct part *part = argument;
    intptr_t wrong = 0;
    for (int i = 0; i < part->steps; i++) {
        unsigned dice = rand_r(&part->seed);
        set(ctx[part->only < 0 ? dice & 1 : part->only]);
        switch (dice >> 4 & 7) {
        case 0: wrong |= stream_sync(NULL); break;
        case 1: wrong |= ctx_sync(); break;
        default: wrong |= launch(0, (dice >> 8) % 60, 1, 1, 1, 1, 1, 0, NULL, 0, 0);
        }
    }
    return (void *)wrong;
}

int main(int argc, char **argv) {
    int programs = atoi(argv[1]), played = 0;
    unsigned seed = atoi(argv[2]);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    set = dlsym(cuda, "cuCtxSetCurrent");
    stream_sync = dlsym(cuda, "cuStreamSynchronize");
    ctx_sync = dlsym(cuda, "cuCtxSynchronize");
    launch = dlsym(cuda, "cuLaunchKernel");
    if (init(0) || retain(&ctx[0], 0) || retain(&ctx[1], 1)) return 1;
    for (; played < programs; played++) {
        struct part one = {rand_r(&seed), 1 + rand_r(&seed) % 12, -1}, two = one;
        void *wrong = NULL, *wrong_too = NULL;
        if (rand_r(&seed) & 1) {
            pthread_t thread;
            one.only = rand_r(&seed) & 1;
            two.only = !one.only;
            two.seed++;
            pthread_create(&thread, NULL, play, &two);
            wrong_too = play(&one);
            pthread_join(thread, &wrong);
        } else {
            wrong = play(&one);
        }
        if (wrong || wrong_too) return 2;
    }
    printf("played %d\n", played);
    return 0;
}
