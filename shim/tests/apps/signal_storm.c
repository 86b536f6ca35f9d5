/* A profiler's timer at 5 kHz while threads with the smallest stacks launch: every handler runs on a small stack of
 * its own thread, and none on the library's threads. */
#include "guest.h"
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>

#define THREADS 4
static volatile sig_atomic_t strangers, handled;
static void handler(int _) {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    if (!strcmp(name, "gpushare")) strangers = 1;
    handled = 1;
}
static void *work(void *_) {
    static char stacks[THREADS + 1][8192];
    static int next;
    stack_t small = {.ss_sp = stacks[__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)], .ss_size = 8192};
    sigaltstack(&small, NULL);
    int answer = set(ctx);
    for (int i = 0; i < 300; i++) answer |= launches(3);
    return answer ? "failed" : NULL;
}
int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK}; /* no SA_RESTART */
    sigaction(SIGPROF, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &often, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    int answer = start();
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    long least = sysconf(_SC_THREAD_STACK_MIN);
    pthread_attr_setstacksize(&attributes, least > PTHREAD_STACK_MIN ? least : PTHREAD_STACK_MIN);
    for (int i = 0; i < THREADS; i++) answer |= pthread_create(&threads[i], &attributes, work, NULL);
    for (int i = 0; i < THREADS; i++) {
        void *said;
        pthread_join(threads[i], &said);
        answer |= said != NULL;
    }
    setitimer(ITIMER_PROF, &never, NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    printf("answers %d%s%s\n", answer, handled ? "" : " no signal came", strangers ? " on ours" : "");
    return 0;
}
