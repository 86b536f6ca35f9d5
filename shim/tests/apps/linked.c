/* A program that is linked with the driver. */
#include "who.h"
int cuInit(unsigned);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuDriverGetVersion(int *);
int main(void) {
    uint64_t address = 0;
    int version = 0;
    printf("cuInit %s %d\n", who((void *)cuInit), cuInit(0));
    printf("cuMemAlloc_v2 %s %d\n", who((void *)cuMemAlloc_v2), cuMemAlloc_v2(&address, 64));
    printf("address %s\n", address ? "given" : "none");
    printf("cuDriverGetVersion %s %d\n", who((void *)cuDriverGetVersion), cuDriverGetVersion(&version));
    printf("default %s\n", who(dlsym(RTLD_DEFAULT, "cuInit")));
    printf("next %s\n", who(dlsym(RTLD_NEXT, "cuInit")));
    return 0;
}
