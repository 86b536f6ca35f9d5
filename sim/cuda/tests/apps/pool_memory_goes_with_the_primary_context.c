// What pools allocate outlives a created context, and goes when the primary one is reset or released for the last time.
#include "app.h"

Result cuDevicePrimaryCtxRelease_v2(int);

enum { USED_CURRENT = 7, CHUNK = 1 << 20 };
static Any pool, context;
static int wrong;

static unsigned long long used(void) {
    unsigned long long bytes = 0;
    Result asked = cuMemPoolGetAttribute(pool, USED_CURRENT, &bytes);
    if (asked != OK) printf("  the pool's size cannot be asked: %d\n", asked);
    return bytes;
}

static void retain(void) {
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
}

static void is(const char *what, unsigned long long got, unsigned long long wanted) {
    printf("%-8s %-62s %llu, expected %llu\n", got == wanted ? "ok" : "DIFFERS", what, got, wanted);
    wrong += got != wanted;
}

// Whether the driver still knows what was allocated there, and still frees it.
static void find(const char *end, const char *what, Ptr at, int stays) {
    char line[100];
    int type = 0;
    snprintf(line, sizeof line, "%s: the driver knows %s", end, what);
    is(line, cuPointerGetAttribute(&type, 2, at) == OK, stays);
    snprintf(line, sizeof line, "%s: freeing %s answers", end, what);
    is(line, cuMemFree_v2(at), stays ? OK : INVALID_VALUE);
}

static void try(const char *end, Result (*finish)(int)) {
    PoolProps on_device = {.type = 1, .location = {1, 0}}, on_host = {.type = 1, .location = {2, 0}};
    Any own, stream, host = NULL;
    Ptr destroyed, in_own, in_primary, in_default, on_the_host = 0;
    char line[100];
    retain();
    DO(cuMemPoolCreate(&pool, &on_device));
    DO(cuMemAllocFromPoolAsync(&in_primary, CHUNK, pool, NULL));
    DO(cuMemAllocAsync(&in_default, CHUNK, NULL));
    // Drivers before 13.0 have no pools of the host.
    if (cuMemPoolCreate(&host, &on_host) == OK) DO(cuMemAllocFromPoolAsync(&on_the_host, CHUNK, host, NULL));
    DO(cuCtxSynchronize());
    DO(cuCtxCreate_v2(&own, 0, 0));
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuMemAllocFromPoolAsync(&destroyed, CHUNK, pool, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuCtxDestroy_v2(own));
    DO(cuCtxSetCurrent(context));
    snprintf(line, sizeof line, "%s: used before, one context destroyed", end);
    is(line, used(), 2 * CHUNK);
    DO(cuCtxCreate_v2(&own, 0, 0));
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuMemAllocFromPoolAsync(&in_own, CHUNK, pool, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuCtxSetCurrent(NULL));

    DO(finish(0));
    retain();
    snprintf(line, sizeof line, "%s: used after", end);
    is(line, used(), 2 * CHUNK);
    find(end, "memory of the primary context", in_primary, 0);
    find(end, "memory of the default pool", in_default, 0);
    if (on_the_host) find(end, "memory of a pool on the host", on_the_host, 0);
    find(end, "memory of a destroyed context", destroyed, 1);
    find(end, "memory of a living created context", in_own, 1);
    snprintf(line, sizeof line, "%s: used at the end", end);
    is(line, used(), 0);
    cuCtxDestroy_v2(own);
    cuMemPoolDestroy(pool);
    cuMemPoolDestroy(host);
}

int main(void) {
    DO(cuInit(0));
    try("release", cuDevicePrimaryCtxRelease_v2);
    try("reset", cuDevicePrimaryCtxReset_v2);
    if (wrong) fprintf(stderr, "%d lines differ\n", wrong);
    return wrong != 0;
}
