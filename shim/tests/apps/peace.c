/* A managed program with unusual behaviour: peace MODE. Prints one line at the end. */
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>

static void *forever(void *_) {
    set(ctx);
    for (;;) launches(100);
}
static void *leave(void *_) {
    usleep(50000);
    puts("left");
    exit(0);
}
static volatile pthread_t handled_by;
static void handler(int _) { handled_by = pthread_self(); }

int main(int argc, char **argv) {
    const char *mode = argv[1];
    pthread_t thread;
    if (!strcmp(mode, "fork-first")) {
        pid_t child = fork();
        int answer = start() | launches(10), status = 0;
        if (!child) return answer;
        waitpid(child, &status, 0);
        printf("answers %d %d\n", answer, status);
        return 0;
    }
    int answer = start() | launches(10);
    if (!strcmp(mode, "exit")) {
        for (int i = 0; i < 4; i++) pthread_create(&thread, NULL, forever, NULL);
        pthread_create(&thread, NULL, leave, NULL);
        pause();
    } else if (!strcmp(mode, "quick-exit")) {
        for (int i = 0; i < 4; i++) pthread_create(&thread, NULL, forever, NULL);
        usleep(20000);
        _exit(0);
    } else if (!strcmp(mode, "exec")) {
        execl("/bin/echo", "echo", "another program", NULL);
    } else if (!strcmp(mode, "close-all")) {
        for (int fd = 3; fd < 1024; fd++) close(fd);
        answer |= launches(1000);
        usleep(300000);
        answer |= launches(1000);
    } else if (!strcmp(mode, "signals")) {
        struct sigaction action = {.sa_handler = handler};
        for (int number = 1; number < 32; number++)
            if (number != SIGCHLD) sigaction(number, &action, NULL);
        for (int i = 0; i < 1000; i++) {
            kill(getpid(), SIGUSR1);
            answer |= launches(1) | (handled_by != pthread_self());
        }
    } else if (!strcmp(mode, "threads")) {
        for (int i = 0; i < 500; i++) {
            extern void *one(void *);
            pthread_create(&thread, NULL, one, NULL);
            pthread_join(thread, NULL);
        }
    } else if (!strcmp(mode, "goes-on")) {
        // As if cuInit had not failed.
        void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
        int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
        int (*alloc)(void **, size_t) = (int (*)(void **, size_t))dlsym(cuda, "cuMemAlloc_v2");
        void *none, *memory;
        int retained = retain(&none, 0);
        printf("%d %d ", retained, alloc(&memory, 512));
    } else if (!strcmp(mode, "vfork")) {
        if (!vfork()) _exit(0);
        answer |= launches(10);
    }
    printf("answers %d\n", answer);
    return 0;
}
void *one(void *_) {
    set(ctx);
    launches(2);
    return NULL;
}
