/* Hooks malloc, as heap profilers do, and like them takes the lock of the linker's list in each call. Another
 * thread takes it here, so that a caller that holds the lock already is reported instead of a deadlock. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
static __thread int inside __attribute__((tls_model("initial-exec")));
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static sem_t asked, answered;
static pid_t watched;

static int enough(struct dl_phdr_info *info, size_t size, void *data) { return 1; }
static void *look(void *_) {
    inside = 1;
    for (;;) {
        while (sem_wait(&asked)) continue;
        dl_iterate_phdr(enough, NULL);
        sem_post(&answered);
    }
}
static void watch(void) {
    if (inside || getpid() != watched) return; /* a forked child has no second thread to take the lock */
    inside = 1;
    pthread_mutex_lock(&one_at_a_time);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    sem_post(&asked);
    int late;
    while ((late = sem_timedwait(&answered, &until)) && errno == EINTR) continue;
    static const char words[] = "allocated while the linker's list is locked\n";
    if (late) {
        write(2, words, sizeof words - 1);
        _exit(9);
    }
    pthread_mutex_unlock(&one_at_a_time);
    inside = 0;
}
__attribute__((constructor)) static void start(void) {
    pthread_t thread;
    inside = 1;
    sem_init(&asked, 0, 0);
    sem_init(&answered, 0, 0);
    if (!pthread_create(&thread, NULL, look, NULL)) watched = getpid();
    inside = 0;
}

void *malloc(size_t bytes) { return watch(), __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return watch(), __libc_calloc(count, bytes); }
void *realloc(void *old, size_t bytes) { return watch(), __libc_realloc(old, bytes); }
int posix_memalign(void **place, size_t align, size_t bytes) {
    watch();
    *place = __libc_memalign(align, bytes);
    return *place ? 0 : ENOMEM;
}
