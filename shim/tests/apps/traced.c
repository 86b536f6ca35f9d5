/* Executes its input on the driver, one command per line, and replies to each with the driver's code and the number
 * of calls:
 * look N · init · device N · launch N · alloc BYTES · copy BYTES · thread N · fork N · loop THREADS · halt · exit ·
 * quit. Any other line ends it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *cuda, *context, *kernel = (void *)16;
static volatile int halted;
static const char image[] = ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry spin_us_1() { ret; }\n";

#define GET(name) dlsym(cuda, #name)
#define CALL(name, ...) (GET(name) ? ((int (*)())GET(name))(__VA_ARGS__) : 0)
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_t launch;

static int launches(long n) {
    for (long i = 0; i < n; i++) {
        int code = launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        if (code) return code;
    }
    return 0;
}

static void *other(void *n) {
    CALL(cuCtxSetCurrent, context);
    return (void *)(intptr_t)launches((long)n);
}

static void *forever(void *_) {
    CALL(cuCtxSetCurrent, context);
    long done = 0;
    while (!halted) {
        if (launches(10)) return (void *)-1;
        done += 10;
        CALL(cuCtxSynchronize);
    }
    return (void *)done;
}

static int init(void) {
    int code = CALL(cuInit, 0);
    if (code) return code;
    launch = (launch_t)GET(cuLaunchKernel);
    void *module;
    if ((code = CALL(cuDevicePrimaryCtxRetain, &context, 0))) return code;
    if ((code = CALL(cuCtxSetCurrent, context))) return code;
    if (!GET(cuModuleLoadData)) return 0;
    if ((code = CALL(cuModuleLoadData, &module, image))) return code;
    return CALL(cuModuleGetFunction, &kernel, module, "spin_us_1");
}

static int copy(size_t bytes) {
    uint64_t there;
    char *here = calloc(1, bytes);
    int code = CALL(cuMemAlloc_v2, &there, bytes);
    if (!code) code = CALL(cuMemcpyHtoD_v2, there, here, bytes);
    if (!code) code = CALL(cuMemFree_v2, there);
    free(here);
    return code;
}

int main(void) {
    pthread_t ids[8];
    int running = 0;
    char line[128], word[32];
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    while (fgets(line, sizeof line, stdin)) {
        long n = 0, did = 0;
        int code = 0;
        sscanf(line, "%31s %ld", word, &n);
        if (!strcmp(word, "init")) code = init();
        else if (!strcmp(word, "look")) {
            void *found;
            for (long i = 0; i < n && !code; i++) code = CALL(cuGetProcAddress_v2, "cuMemAlloc", &found, 12000, (uint64_t)0, NULL);
        } else if (!strcmp(word, "device")) {
            void *module;
            code = CALL(cuDevicePrimaryCtxRetain, &context, (int)n) || CALL(cuCtxSetCurrent, context) ||
                   CALL(cuModuleLoadData, &module, image) || CALL(cuModuleGetFunction, &kernel, module, "spin_us_1");
        } else if (!strcmp(word, "launch")) { code = launches(n); CALL(cuCtxSynchronize); }
        else if (!strcmp(word, "alloc")) { uint64_t address; code = CALL(cuMemAlloc_v2, &address, (size_t)n); }
        else if (!strcmp(word, "copy")) code = copy(n);
        else if (!strcmp(word, "thread")) {
            void *result;
            pthread_create(&ids[0], NULL, other, (void *)n);
            pthread_join(ids[0], &result);
            code = (int)(intptr_t)result;
        } else if (!strcmp(word, "fork")) {
            fflush(stdout);
            pid_t child = fork();
            if (!child) {
                for (long i = 0; i < n; i++) launches(1);
                _exit(0);
            }
            waitpid(child, &code, 0);
        } else if (!strcmp(word, "loop")) {
            for (running = 0; running < n; running++) pthread_create(&ids[running], NULL, forever, NULL);
        } else if (!strcmp(word, "halt")) {
            halted = 1;
            for (; running; running--) {
                void *result;
                pthread_join(ids[running - 1], &result);
                if ((long)result < 0) code = 1;
                did += (long)result;
            }
        } else if (!strcmp(word, "exit")) exit(0);
        else if (!strcmp(word, "quit")) _exit(0);
        else return 2;
        printf("%d %ld\n", code, did);
        fflush(stdout);
    }
    return 0;
}
