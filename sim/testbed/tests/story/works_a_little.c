/* Allocates some memory of the device, sets it and reads it back. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define CALL(function, ...) \
    do { \
        if (((int (*)())dlsym(driver, #function))(__VA_ARGS__)) exit(1); \
    } while (0)

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context, *stream;
    unsigned long long memory;
    char bytes[64];
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    CALL(cuMemAlloc_v2, &memory, sizeof bytes);
    CALL(cuStreamCreate, &stream, 1);
    CALL(cuMemsetD8Async, memory, 3, sizeof bytes, stream);
    CALL(cuStreamSynchronize, stream);
    CALL(cuMemcpyDtoH_v2, bytes, memory, sizeof bytes);
    printf("%d\n", bytes[63]);
    return 0;
}
