/* Sixteen threads make the first lookup at the same time. */
#include "who.h"
#include <pthread.h>
static pthread_barrier_t barrier;
static void *ask(void *_) {
    pthread_barrier_wait(&barrier);
    void *cuda = driver();
    void *init = dlsym(cuda, "cuInit");
    int ok = !strcmp(who(init), "ours") && ((int (*)(unsigned))init)(0) == 0 && dlsym(RTLD_DEFAULT, "malloc");
    return (void *)(intptr_t)ok;
}
int main(void) {
    pthread_t threads[16];
    int good = 0;
    pthread_barrier_init(&barrier, NULL, 16);
    for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, ask, NULL);
    for (int i = 0; i < 16; i++) {
        void *ok;
        pthread_join(threads[i], &ok);
        good += ok != NULL;
    }
    printf("%d of 16\n", good);
    return 0;
}
