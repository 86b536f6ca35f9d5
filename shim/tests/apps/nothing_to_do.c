/* A program without a GPU: threads, memory, a successful lookup and a failing one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *work(void *at) {
    char *room = malloc(100000);
    memset(room, 1, 100000);
    free(room);
    *(int *)at = 1;
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    int done[8] = {0}, count = 0;
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, &done[i]);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL), count += done[i];
    void *found = dlsym(RTLD_DEFAULT, "malloc");
    void *missing = dlsym(RTLD_DEFAULT, "cuInit");
    const char *error = dlerror();
    printf("threads %d libc's malloc %s, error %s\n", count, found && !missing ? "found" : "lost",
           error && strstr(error, "cuInit") ? "libc's" : "lost");
    return 0;
}
