/* A managed program with MUCH bytes of static TLS. It writes all of them in a second thread too. */
#include "guest.h"
static __thread volatile char much[MUCH];

static void touch(void) {
    for (int i = 0; i < MUCH; i += 512) much[i] = 1;
}
static void *work(void *_) {
    touch();
    set(ctx);
    return (void *)(long)launches(10);
}
int main(void) {
    pthread_t thread;
    void *end;
    int answer = start();
    touch();
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, &end);
    usleep(250000);
    printf("answers %d\n", answer | launches(10) | (int)(long)end);
    return 0;
}
