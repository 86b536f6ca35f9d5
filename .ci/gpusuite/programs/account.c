// Compares the bytes that the library charges with the bytes that the driver uses: graphs, mapped memory, arrays. Runs
// preloaded, under a quota smaller than the device, so that cuMemGetInfo shows the ledger. Each line begins with "ok" or
// "DIFFERS".
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long P; typedef void *H;
typedef struct { int type, id; } Loc;
typedef struct { int type, handles; Loc loc; void *w; size_t max; unsigned short usage; unsigned char r[54]; } PoolProps;
typedef struct { PoolProps pool; void *access; size_t n, bytes; P addr; } GA;
typedef struct { int type, handles; Loc loc; void *w; unsigned char c, r; unsigned short u; unsigned char z[4]; } Prop;
typedef struct { size_t w, h, d; int fmt; unsigned ch, flags; } A3;
static void *lib; static H ctx, s, s2; static int wrong;
#define C(name, types, ...) ((int (*) types)dlsym(lib, #name)) (__VA_ARGS__)
static size_t used(void) { size_t f = 0, t = 0; C(cuMemGetInfo_v2, (size_t *, size_t *), &f, &t); return t - f; }
static size_t kept(void) { P v = 0; C(cuDeviceGetGraphMemAttribute, (int, int, void *), 0, 2, &v); return v; }
static void is(const char *what, size_t want) {
    size_t u = used();
    wrong += u != want;
    printf("%-8s %-50s ledger %zu, expected %zu\n", u == want ? "ok" : "DIFFERS", what, u, want);
    fflush(stdout);
}
static void holds(const char *what, size_t want) {
    // The ledger is exact; the driver uses whole blocks, so each allocation may take up to one block more.
    size_t u = used(), k = kept(), fits = u <= k && k - u < ((size_t)64 << 20); wrong += u != want || !fits;
    printf("%-8s %-50s ledger %zu, expected %zu, driver keeps %zu\n", u == want && fits ? "ok" : "DIFFERS", what, u, want, k);
    fflush(stdout);
}

static int alloc(H g, H dep, size_t bytes, H *node, P *addr) {
    GA a;
    memset(&a, 0, sizeof a);
    a.pool.type = 1;
    a.pool.loc.type = 1;
    a.bytes = bytes;
    int r = C(cuGraphAddMemAllocNode, (H *, H, H *, size_t, GA *), node, g, dep ? &dep : 0, dep ? 1 : 0, &a);
    *addr = a.addr;
    return r;
}
static H graph(size_t bytes, int freed, H *x, P *a) {
    H g = 0, n, f;
    C(cuGraphCreate, (H *, unsigned), &g, 0);
    alloc(g, 0, bytes, &n, a);
    if (freed) C(cuGraphAddMemFreeNode, (H *, H, H *, size_t, P), &f, g, &n, 1, *a);
    C(cuGraphInstantiateWithFlags, (H *, H, P), x, g, 0);
    return g;
}
static int launch(H x, H t) { int r = C(cuGraphLaunch, (H, H), x, t); C(cuStreamSynchronize, (H), t); return r; }
static void trim(void) { C(cuDeviceGraphMemTrim, (int), 0); }

int main(void) {
    size_t M = 1 << 20; H g[4], x[4]; P a[4]; int r;
    lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    C(cuInit, (unsigned), 0);
    C(cuDevicePrimaryCtxRetain, (H *, int), &ctx, 0);
    C(cuCtxSetCurrent, (H), ctx);
    C(cuStreamCreate, (H *, unsigned), &s, 1);
    C(cuStreamCreate, (H *, unsigned), &s2, 1);
    is("nothing", 0);
    g[0] = graph(40 * M, 0, &x[0], &a[0]); is("a graph and its executable", 0);
    C(cuGraphUpload, (H, H), x[0], s); C(cuStreamSynchronize, (H), s); holds("uploaded", 40 * M);
    launch(x[0], s); holds("launched", 40 * M);
    g[1] = graph(30 * M, 1, &x[1], &a[1]); launch(x[1], s); holds("another beside it", 70 * M);
    C(cuMemFreeAsync, (P, H), a[0], s); C(cuStreamSynchronize, (H), s); holds("the first freed", 70 * M);
    launch(x[1], s2); holds("the other in an idle program's second stream", 70 * M);
    trim(); holds("trimmed", 0);
    launch(x[1], s); launch(x[1], s2); holds("one after the other in two streams", 30 * M);
    C(cuGraphExecDestroy, (H), x[1]);
    C(cuGraphDestroy, (H), g[1]);
    holds("destroyed", 30 * M);
    trim();
    holds("trimmed", 0);
    launch(x[0], s);
    C(cuGraphExecDestroy, (H), x[0]);
    C(cuGraphDestroy, (H), g[0]);
    trim();
    holds("destroyed and trimmed while in use", 40 * M);
    C(cuMemFree_v2, (P), a[0]); trim(); holds("freed and trimmed", 0);
    H n, n2, n3;
    C(cuGraphCreate, (H *, unsigned), &g[2], 0);
    alloc(g[2], 0, 40 * M, &n, &a[1]);
    C(cuGraphAddMemFreeNode, (H *, H, H *, size_t, P), &n2, g[2], &n, 1, a[1]);
    alloc(g[2], n2, 40 * M, &n3, &a[2]);
    C(cuGraphAddMemFreeNode, (H *, H, H *, size_t, P), &n2, g[2], &n3, 1, a[2]);
    C(cuGraphInstantiateWithFlags, (H *, H, P), &x[2], g[2], 0);
    launch(x[2], s);
    holds("two allocations, one after the other, in one graph", a[1] == a[2] ? 40 * M : 80 * M);
    C(cuGraphExecDestroy, (H), x[2]);
    C(cuGraphDestroy, (H), g[2]);
    trim();
    g[3] = graph((size_t)9 << 30, 1, &x[3], &a[3]);
    r = launch(x[3], s);
    printf("%-8s a launch over the quota answers %d\n", r == 2 ? "ok" : "DIFFERS", r);
    wrong += r != 2;
    is("after the denial", 0);
    C(cuGraphExecDestroy, (H), x[3]);
    C(cuGraphDestroy, (H), g[3]);
    trim();
    Prop prop;
    memset(&prop, 0, sizeof prop);
    prop.type = 1;
    prop.loc.type = 1;
    P va, h[3];
    C(cuMemAddressReserve, (P *, size_t, size_t, P, P), &va, 64 * M, 0, 0, 0);
    for (int i = 0; i < 3; i++) {
        C(cuMemCreate, (P *, size_t, Prop *, P), h + i, 4 * M, &prop, 0);
        C(cuMemMap, (P, size_t, size_t, P, P), va + i * 12 * M, 4 * M, 0, h[i], 0);
        C(cuMemRelease, (P), h[i]);
    }
    is("three mappings with holes between", 12 * M);
    r = C(cuMemUnmap, (P, size_t), va, 14 * M);
    printf("cutting unmap rc=%d\n", r);
    is("a range that cuts one", r ? 12 * M : 8 * M);
    C(cuMemUnmap, (P, size_t), va + 12 * M, 40 * M);
    is("two of them and the holes", 4 * M);
    C(cuMemUnmap, (P, size_t), va, 4 * M);
    is("all", 0);
    int f[][4] = { { 0x20, 4, 128, 1} , { 0x10, 2, 32, 1} , { 0x50, 4, 32, 1} , { 0x91, 4, 64, 4} , { 0x96, 4, 128, 4} , { 0x98, 1, 64, 4} , { 0x9b, 3, 128, 4} , { 0xc5, 4, 64, 1} , { 0xca, 2, 32, 1} } ;
    for (int i = 0; i < 9; i++) {
        A3 d = { 101, 67, 0, f[i][0], f[i][1], 0} ;
        H arr = 0;
        r = C(cuArray3DCreate_v2, (H *, A3 *), &arr, &d);
        size_t side = f[i][3], want = ((101 + side - 1) / side) * ((67 + side - 1) / side) * f[i][2] / 8;
        char t[60];
        snprintf(t, 60, "array of format %#x (rc %d)", f[i][0], r);
        is(t, r ? 0 : want);
        if (!r) C(cuArrayDestroy, (H), arr);
    }
    is("at the end", 0); printf("%d differ\n", wrong); return wrong;
}
