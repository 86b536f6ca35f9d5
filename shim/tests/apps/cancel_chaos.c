/* Cancels threads at random moments while they do all kinds of work: cancel_chaos ROUNDS. Prints how many were
 * cancelled, and whether work and waiting still function afterwards. */
#include "guest.h"
#include <stdint.h>

static void *cuda;

#define CALL(name, type, ...) ((int (*) type)name)(__VA_ARGS__)
static void *create, *destroy, *record, *event, *event_destroy, *stream_sync, *ctx_sync, *query, *allocate, *release;
static void *allocate_async, *release_async, *get_current, *set_current;

static void *work(void *seed_at) {
    unsigned seed = (unsigned)(uintptr_t)seed_at;
    start();
    for (;;) {
        void *stream = NULL, *an_event = NULL;
        unsigned long long memory = 0;
        switch (rand_r(&seed) % 8) {
        case 0:
            CALL(create, (void **, unsigned), &stream, 0);
            if (stream) launch(0, 20, 1, 1, 1, 1, 1, 0, stream, 0, 0);
            if (stream) CALL(destroy, (void *), stream);
            break;
        case 1:
            CALL(allocate, (unsigned long long *, size_t), &memory, 4096);
            if (memory) CALL(release, (unsigned long long), memory);
            break;
        case 2: launches(5); break;
        case 3: CALL(stream_sync, (void *), NULL); break;
        case 4: CALL(ctx_sync, (void)); break;
        case 5:
            CALL(event, (void **, unsigned), &an_event, 0);
            if (an_event) CALL(record, (void *, void *), an_event, NULL);
            if (an_event) CALL(event_destroy, (void *), an_event);
            CALL(query, (void *), NULL);
            break;
        case 6:
            CALL(allocate_async, (unsigned long long *, size_t, void *), &memory, 4096, NULL);
            if (memory) CALL(release_async, (unsigned long long, void *), memory, NULL);
            break;
        case 7:
            CALL(get_current, (void **), &stream);
            CALL(set_current, (void *), stream);
        }
    }
}
int main(int argc, char **argv) {
    int rounds = atoi(argv[1]), cancelled = 0;
    unsigned seed = 1;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    create = dlsym(cuda, "cuStreamCreate"), destroy = dlsym(cuda, "cuStreamDestroy_v2");
    event = dlsym(cuda, "cuEventCreate"), record = dlsym(cuda, "cuEventRecord"), event_destroy = dlsym(cuda, "cuEventDestroy_v2");
    stream_sync = dlsym(cuda, "cuStreamSynchronize"), ctx_sync = dlsym(cuda, "cuCtxSynchronize"), query = dlsym(cuda, "cuStreamQuery");
    allocate = dlsym(cuda, "cuMemAlloc_v2"), release = dlsym(cuda, "cuMemFree_v2");
    allocate_async = dlsym(cuda, "cuMemAllocAsync"), release_async = dlsym(cuda, "cuMemFreeAsync");
    get_current = dlsym(cuda, "cuCtxGetCurrent"), set_current = dlsym(cuda, "cuCtxSetCurrent");
    for (int round = 0; round < rounds; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)rand_r(&seed));
        for (int i = 0; i < 4; i++) {
            void *end;
            usleep(rand_r(&seed) % 3000);
            pthread_cancel(threads[i]);
            pthread_join(threads[i], &end);
            cancelled += end == PTHREAD_CANCELED;
        }
    }
    int answer = start() | launches(100) | CALL(ctx_sync, (void));
    printf("answers %d cancelled %d\n", answer, cancelled);
    return 0;
}
