/* Uses the driver, forks, and uses it in the child too: both are managed processes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *ctx;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    launch_t launch = (launch_t)dlsym(cuda, "cuLaunchKernel");
    init(0);
    retain(&ctx, 0);
    set(ctx);
    printf("before %d\n", launch(0, 10, 1, 1, 1, 1, 1, 0, NULL, 0, 0));
    fflush(stdout);
    pid_t child = fork();
    int answer = launch(0, 10, 1, 1, 1, 1, 1, 0, NULL, 0, 0);
    if (child) {
        int status;
        waitpid(child, &status, 0);
        answer |= status;
    }
    printf("%s %d\n", child ? "parent" : "child", answer);
    return 0;
}
