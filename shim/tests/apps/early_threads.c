/* Threads that called the driver before their process was registered: before cuInit, or before a fork. Prints the
 * pid and the results, and waits for the end of its input. */
#include "guest.h"
#include <sys/wait.h>

enum { EARLY = 7, OTHER = 5 };
static pthread_barrier_t step;
static int answer;

static void *early(void *unused) {
    (void)unused;
    set(NULL);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    answer |= set(ctx) | launches(EARLY);
    return NULL;
}

static void *first_in_the_child(void *unused) {
    (void)unused;
    answer |= start() | launches(OTHER);
    return NULL;
}

static void wait_for_the_end(void) {
    char line[8];
    printf("ready %d %d\n", getpid(), answer);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {}
}

int main(int count, char **words) {
    pthread_t thread;
    if (count > 1 && !strcmp(words[1], "fork")) {
        answer |= start() | launches(1);
        pid_t child = fork();
        if (child) {
            int status = 0;
            waitpid(child, &status, 0);
            return status != 0;
        }
        pthread_create(&thread, NULL, first_in_the_child, NULL);
        pthread_join(thread, NULL);
        // This thread launched before the fork, and makes no other driver call before it launches again.
        answer |= launches(EARLY);
    } else {
        void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
        set = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
        pthread_barrier_init(&step, NULL, 2);
        pthread_create(&thread, NULL, early, NULL);
        pthread_barrier_wait(&step);
        answer |= start() | launches(OTHER);
        pthread_barrier_wait(&step);
        pthread_join(thread, NULL);
    }
    wait_for_the_end();
    return answer;
}
