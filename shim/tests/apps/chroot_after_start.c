/* Starts, then changes its root to a directory without any known file: chroot_after_start EMPTY_DIR */
#include "guest.h"
static void *late(void *_) {
    set(ctx);
    return launches(100) ? "failed" : NULL;
}
int main(int argc, char **argv) {
    int answer = start() | launches(10);
    if (chroot(argv[1]) || chdir("/")) return puts("not allowed"), 0;
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        void *said;
        pthread_create(&thread, NULL, late, NULL);
        pthread_join(thread, &said);
        answer |= said != NULL;
        usleep(100000);
        answer |= launches(100);
    }
    printf("answers %d\n", answer);
    return 0;
}
