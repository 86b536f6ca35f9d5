/* A library that starts threads and runs callbacks on them, as the driver does. */
#include <pthread.h>

struct task { void *(*body)(void *); void *argument; };

static void *start(void *task) {
    struct task *given = task;
    return given->body(given->argument);
}

int run_in_a_thread(void *(*body)(void *), void *argument) {
    struct task task = {body, argument};
    pthread_t thread;
    return pthread_create(&thread, NULL, start, &task) || pthread_join(thread, NULL);
}
