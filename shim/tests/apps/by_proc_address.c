/* cuGetProcAddress, both versions and both default streams. */
#include "who.h"
typedef int (*v1)(const char *, void **, int, uint64_t);
typedef int (*v2)(const char *, void **, int, uint64_t, int *);
int main(void) {
    void *cuda = driver(), *pfn;
    v2 look = (v2)dlsym(cuda, "cuGetProcAddress_v2");
    int status = 9;
    printf("look %s\n", who((void *)look));
    look("cuInit", &pfn, 2000, 0, &status);
    printf("cuInit %s status %d\n", who(pfn), status);
    look("cuDriverGetVersion", &pfn, 12000, 0, &status);
    printf("cuDriverGetVersion %s\n", who(pfn));
    look("cuMemAlloc", &pfn, 3020, 0, &status);
    printf("cuMemAlloc %s %s\n", who(pfn), pfn == dlsym(cuda, "cuMemAlloc_v2") ? "as by dlsym" : "differs");
    look("cuMemAlloc", &pfn, 2000, 0, &status);
    printf("its first form %s\n", who(pfn));
    look("cuMemAlloc", &pfn, 13050, 0, &status);
    printf("its next form %s\n", who(pfn));
    look("cuLaunchKernel", &pfn, 12000, 2, &status);
    printf("per-thread %s %s\n", who(pfn), pfn == dlsym(cuda, "cuLaunchKernel_ptsz") ? "as by dlsym" : "differs");
    look("cuLaunchKernel", &pfn, 12000, 0, &status);
    printf("legacy %s %s\n", who(pfn), pfn == dlsym(cuda, "cuLaunchKernel") ? "as by dlsym" : "differs");
    pfn = &pfn;
    look("cuNoSuch", &pfn, 12000, 0, &status);
    printf("cuNoSuch %s status %d\n", who(pfn), status);
    look("cuGetProcAddress", &pfn, 12000, 0, &status);
    printf("v2 of itself %s\n", who(pfn));
    look("cuGetProcAddress", &pfn, 11030, 0, &status);
    printf("v1 of itself %s\n", who(pfn));
    v1 old = (v1)pfn;
    old("cuMemFree", &pfn, 12000, 0);
    printf("cuMemFree by v1 %s\n", who(pfn));
    return 0;
}
