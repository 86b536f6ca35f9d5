/* Cancels threads while they start, launch and wait for the GPU; the others go on. */
#include "guest.h"
static int (*sync_stream)(void *);
static volatile int started;
static void *work(void *_) {
    int answer = start();
    started = 1;
    for (;;) {
        answer |= launch(0, 3000, 1, 1, 1, 1, 1, 0, NULL, 0, 0) | sync_stream(NULL);
        pthread_testcancel();
    }
}
int main(void) {
    int answer = start() | launches(10), cancelled = 0;
    sync_stream = (int (*)(void *))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuStreamSynchronize");
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *end;
        started = 0;
        pthread_create(&thread, NULL, work, NULL);
        while (!started && i % 2) usleep(100);
        usleep(i * 137);
        pthread_cancel(thread);
        pthread_join(thread, &end);
        cancelled += end == PTHREAD_CANCELED;
        answer |= launches(1);
    }
    printf("answers %d cancelled %d\n", answer | launches(10) | sync_stream(NULL), cancelled);
    return 0;
}
