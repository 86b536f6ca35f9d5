/* Opens the driver and NVML in the given order, joins the world with both, and ends. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int begin(const char *library, const char *name, int takes_flags) {
    void *opened = dlopen(library, RTLD_NOW);
    if (!opened) return printf("%s\n", dlerror()), -1;
    void *init = dlsym(opened, name);
    return takes_flags ? ((int (*)(unsigned))init)(0) : ((int (*)(void))init)();
}

int main(int count, char **words) {
    char line[8];
    int answer = 0;
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "cuda")) answer |= begin("libcuda.so.1", "cuInit", 1);
        else answer |= begin("libnvidia-ml.so.1", "nvmlInit_v2", 0);
    }
    printf("ready %d\n", answer);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {}
    return answer;
}
