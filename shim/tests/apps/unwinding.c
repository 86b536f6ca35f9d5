/* From inside a launch: the stack can be unwound up to main, and a launch inside the launch works. */
#include "who.h"
#include <execinfo.h>
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_t launch;
static int saw_main, nested = -1;
static int launch_from(int kernel) {
    return launch((void *)(intptr_t)kernel, 1, 2, 3, 4, 5, 6, 7, NULL, (void **)8, (void **)9);
}
static void inside(void) {
    void *frames[64];
    int count = backtrace(frames, 64);
    for (int i = 0; i < count; i++) {
        Dl_info info;
        if (dladdr(frames[i], &info) && info.dli_sname && !strcmp(info.dli_sname, "main")) saw_main = 1;
    }
    nested = launch_from(16);
}
int main(void) {
    void *cuda = driver();
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    launch = (launch_t)dlsym(cuda, "cuLaunchKernel");
    init(0);
    *(void (**)(void))dlsym(cuda, "noop_inside") = inside;
    for (int round = 0; round < 3; round++) {
        int answer = launch_from(1), again = launch_from(16);
        printf("answer %d main %s nested %d again %d\n", answer, saw_main ? "seen" : "hidden", nested, again);
        saw_main = 0, nested = -1;
    }
    return 0;
}
