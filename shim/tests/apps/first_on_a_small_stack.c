/* The first lookup, the first use of CUDA and the first launch, all on a thread with a stack as small as musl's. */
#include "guest.h"
static void *work(void *_) { return start() | launches(20) ? "failed" : NULL; }
int main(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    void *said;
    dlopen("libcuda.so.1", RTLD_NOW);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    if (pthread_create(&thread, &attributes, work, NULL)) return 3;
    pthread_join(thread, &said);
    printf("answers %d\n", said != NULL);
    return 0;
}
