/* A program that takes memory from the device, gives it back and ends. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context = 0;
    if (!cuda) return printf("%s\n", dlerror()), 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    int (*give)(uint64_t) = (int (*)(uint64_t))dlsym(cuda, "cuMemFree_v2");
    int (*release)(int) = (int (*)(int))dlsym(cuda, "cuDevicePrimaryCtxRelease_v2");
    uint64_t address = 0;
    int answer = init(0) | retain(&context, 0) | set(context) | alloc(&address, 1 << 20) | give(address) | set(0) | release(0);
    printf("answer %d\n", answer);
    return 0;
}
