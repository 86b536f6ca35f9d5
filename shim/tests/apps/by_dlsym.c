/* dlsym on a handle: a hooked name leads to the library, any other to the driver, and a missing one returns NULL
 * with libc's own message. */
#include "who.h"
int main(void) {
    void *cuda = driver();
    printf("cuInit %s\n", who(dlsym(cuda, "cuInit")));
    printf("cuLaunchKernel %s\n", who(dlsym(cuda, "cuLaunchKernel")));
    printf("cuDriverGetVersion %s\n", who(dlsym(cuda, "cuDriverGetVersion")));
    dlerror();
    printf("cuMemPoolCreate %s\n", who(dlsym(cuda, "cuMemPoolCreate")));
    const char *error = dlerror();
    int libcs = error && (strstr(error, "libcuda.so.1: undefined symbol: cuMemPoolCreate") /* the message of glibc, or of musl */
                          || !strcmp(error, "Symbol not found: cuMemPoolCreate"));
    printf("error %s\n", libcs ? "libc's" : error);
    printf("cuNoSuch %s\n", who(dlsym(cuda, "cuNoSuch")));
    printf("malloc %s\n", dlsym(RTLD_DEFAULT, "malloc") ? "found" : "null");
    return 0;
}
