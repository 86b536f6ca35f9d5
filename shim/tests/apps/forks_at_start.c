/* Another thread forks while the library registers the process: after it has mapped the file whose lock shows that the process
 * lives, and before it closes the descriptor. The children live on. */
#include "guest.h"
#include <sys/mman.h>
#include <sys/syscall.h>

static int wanted, forked;

static void *forks(void *_) {
    for (;;) {
        if (__atomic_load_n(&wanted, __ATOMIC_ACQUIRE) == forked) {
            usleep(100);
            continue;
        }
        if (!fork()) {
            /* In the group of its parent, which the test ends. */
            alarm(300);
            for (;;) pause();
        }
        __atomic_add_fetch(&forked, 1, __ATOMIC_RELEASE);
    }
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    void *mapped = (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
    if (file >= 0 && bytes == 4096 && protection == PROT_READ) {
        __atomic_add_fetch(&wanted, 1, __ATOMIC_RELEASE);
        usleep(10000);
    }
    return mapped;
}
void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off64_t offset) {
    return mmap(at, bytes, protection, flags, file, offset);
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, forks, NULL);
    int answer = start() | launches(10);
    while (__atomic_load_n(&forked, __ATOMIC_ACQUIRE) < __atomic_load_n(&wanted, __ATOMIC_ACQUIRE)) usleep(1000);
    printf("answers %d %s\n", answer, wanted ? "forked" : "alone");
    fflush(stdout);
    for (;;) pause();
}
