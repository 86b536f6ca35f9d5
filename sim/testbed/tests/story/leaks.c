/* Takes memory from the device, frees it and ends. A second thread does the same and ends earlier, and a third one
 * made a call before CUDA was initialised and still runs. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

static void *cuda;
static pthread_barrier_t step;

static int takes_and_gives(void) {
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    int (*give)(uint64_t) = (int (*)(uint64_t))dlsym(cuda, "cuMemFree_v2");
    int (*release)(int) = (int (*)(int))dlsym(cuda, "cuDevicePrimaryCtxRelease_v2");
    uint64_t address = 0;
    void *context = 0;
    return retain(&context, 0) | set(context) | alloc(&address, 1 << 20) | give(address) | set(0) | release(0);
}

static void *short_lived(void *answer) { *(int *)answer |= takes_and_gives(); return 0; }

static void *early(void *answer) {
    int (*set)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    set(0);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    *(int *)answer |= takes_and_gives();
    return 0;
}

int main(void) {
    int answers[2] = {0, 0};
    pthread_t one, other;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) return printf("%s\n", dlerror()), 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    pthread_barrier_init(&step, 0, 2);
    pthread_create(&one, 0, early, answers);
    pthread_barrier_wait(&step);
    answers[1] |= init(0);
    pthread_barrier_wait(&step);
    pthread_join(one, 0);
    pthread_create(&other, 0, short_lived, answers);
    pthread_join(other, 0);
    answers[1] |= takes_and_gives();
    printf("answer %d %d\n", answers[0], answers[1]);
    return 0;
}
