/* A program that is linked with the driver and calls functions without a hook. It prints the result of each input
 * line. */
#include <stdio.h>
typedef unsigned long long u64;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(u64 *, unsigned long);
int cuStreamQuery(void *), cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuEventElapsedTime(float *, void *, void *);

int main(void) {
    void *context, *one, *two;
    u64 address;
    char line[8];
    float ms = 0;
    int code = cuInit(0);
    if (!code) code = cuDevicePrimaryCtxRetain(&context, 0);
    if (!code) code = cuCtxSetCurrent(context);
    if (!code) code = cuMemAlloc_v2(&address, 1 << 20);
    printf("ready %d\n", code);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        code = cuStreamQuery(0);
        if (!code) code = cuEventCreate(&one, 0);
        if (!code) code = cuEventCreate(&two, 0);
        if (!code) code = cuEventRecord(one, 0);
        if (!code) code = cuEventRecord(two, 0);
        while ((code = cuEventElapsedTime(&ms, one, two)) == 600) {}
        printf("%d %d\n", code, ms >= 0);
        fflush(stdout);
    }
    return 0;
}
