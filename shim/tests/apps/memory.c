/* A client of the driver that executes its input, one command per line, and replies to each with the driver's code
 * and the call's results. Names stand for addresses and handles: `alloc a 4096`, `free a`.
 *
 * It uses no header of the driver, so it compiles anywhere; every function is found by dlsym. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long u64;

static void *driver, *nvml;
static struct { char name[24]; u64 value; } names[256];

static u64 *named(const char *name) {
    for (int i = 0; i < 256; i++) {
        if (!names[i].name[0]) snprintf(names[i].name, sizeof names[i].name, "%s", name);
        if (!strcmp(names[i].name, name)) return &names[i].value;
    }
    abort();
}

/* The bytes that the memory under a name has to contain. */
static unsigned char *expected(const char *name, size_t bytes) {
    static unsigned char *contents[256];
    int i = 0;
    named(name);
    while (strcmp(names[i].name, name)) i++;
    if (!contents[i]) contents[i] = calloc(1, bytes);
    return contents[i];
}

static void *find(void *library, const char *function) {
    void *found = library ? dlsym(library, function) : NULL;
    if (!found) {
        printf("missing %s\n", function);
        fflush(stdout);
        exit(3);
    }
    return found;
}

#define CALL(function, ...) ((int (*)())find(driver, #function))(__VA_ARGS__)
#define NVML(function, ...) ((int (*)())find(nvml, #function))(__VA_ARGS__)
#define IS(word) (!strcmp(argv[0], word))
#define NUM(i) strtoull(argv[i], NULL, 0)
#define V(i) (*named(argv[i]))
#define OUT(i) named(argv[i])

static struct { unsigned type, handles; int loc_type, loc_id; void *sa; size_t max; char rest[56]; } pool_props;
static struct { unsigned type, handles; int loc_type, loc_id; void *meta; char rest[8]; } physical;
static struct { struct { unsigned type, handles; int loc_type, loc_id; void *sa; size_t max; char rest[56]; } pool;
                const void *access; size_t count, bytes; u64 dptr; } node;
static struct { int type, reserved[3]; u64 words[30]; } any;
static struct { unsigned devices; size_t size; u64 handle_types, flags; } team;
static struct { struct { int type; u64 at[4]; } from, to; size_t width, height, depth; int order; unsigned flags; } blocks[2];
static u64 fabric[8], shown[8];
static struct { size_t w, h; unsigned format, channels; } flat;
static struct { size_t w, h, d; unsigned format, channels, flags; } deep;
static struct { unsigned resource; u64 array; unsigned kind; u64 part[4]; unsigned operation, handle_type; u64 handle, offset;
                unsigned devices, flags, reserved[2]; } tile;
static struct { unsigned type; u64 handle[2], size; unsigned flags, reserved[16]; } external;
struct handle { char bytes[64]; };

static struct { u64 address, bytes; int code; } asked;

static void ask_in_callback(void *context) {
    asked.code = CALL(cuCtxSetCurrent, context);
    if (!asked.code) asked.code = CALL(cuMemAlloc_v2, &asked.address, (size_t)asked.bytes);
}

static void sleep_in_callback(void *ms) { usleep((useconds_t)(uintptr_t)ms * 1000); }

static useconds_t linger_us;
static void linger(void) { usleep(linger_us); }

struct late { void *context, *stream; u64 address, bytes; useconds_t after_us; int code, begun; };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *alloc_in_thread(void *argument) {
    struct late *late = argument;
    late->code = CALL(cuCtxSetCurrent, late->context);
    if (late->code) return NULL;
    if (late->stream) late->code = CALL(cuMemAllocAsync, &late->address, (size_t)late->bytes, late->stream);
    else late->code = CALL(cuMemAlloc_v2, &late->address, (size_t)late->bytes);
    return NULL;
}

static void *free_in_thread(void *argument) {
    struct late *late = argument;
    CALL(cuCtxSetCurrent, late->context);
    __atomic_store_n(&late->begun, 1, __ATOMIC_RELEASE);
    usleep(late->after_us);
    CALL(cuMemFree_v2, late->address);
    return NULL;
}

/* What another thread does inside a call of the odd driver. */
static struct { u64 handle; void *context; pthread_t thread; } inside;

static void *destroy_pool(void *argument) { return CALL(cuMemPoolDestroy, (void *)inside.handle), argument; }
static void *alloc_async(void *argument) { return CALL(cuMemAllocAsync, &inside.handle, (size_t)4096, (void *)0), argument; }

static void *free_handle(void *argument) { return CALL(cuMemFree_v2, inside.handle), argument; }

static void free_inside(void) {
    pthread_create(&inside.thread, NULL, free_handle, NULL);
    pthread_join(inside.thread, NULL);
}

static void destroy_pool_inside(void) {
    pthread_create(&inside.thread, NULL, destroy_pool, NULL);
    usleep(200000); /* a thread that does not wait has destroyed it by then */
}

static void alloc_async_inside(void) {
    pthread_create(&inside.thread, NULL, alloc_async, NULL);
    pthread_join(inside.thread, NULL);
}

static void *lock_in_thread(void *argument) {
    CALL(cuCtxSetCurrent, ((struct late *)argument)->context);
    pthread_mutex_lock(&lock);
    return NULL;
}

struct words { int argc; char **argv, *more; int code; };
static int run(int argc, char **argv, char *more);

static void *run_words(void *argument) {
    struct words *words = argument;
    words->code = run(words->argc, words->argv, words->more);
    return NULL;
}

static int run(int argc, char **argv, char *more) {
    size_t one = 0, two = 0;
    int code;
    (void)argc;
    if (IS("linger")) return linger_us = NUM(1) * 1000, atexit(linger); /* before init: it runs after the library has detached */
    if (IS("name")) return prctl(PR_SET_NAME, argv[1]); /* of this thread, and of those that it starts */
    if (IS("chdir")) return chdir(argv[1]) ? 9997 : 0;
    if (IS("forbid-listing")) { /* this thread, and those that it starts, may list no directory */
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getdents64, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {4, filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 9997;
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ? 9997 : 0;
    }
    if (IS("init")) return CALL(cuInit, 0);
    if (IS("device")) {
        void *context;
        if ((code = CALL(cuDevicePrimaryCtxRetain, &context, (int)NUM(1)))) return code;
        return CALL(cuCtxSetCurrent, context);
    }
    if (IS("device-release")) return CALL(cuDevicePrimaryCtxRelease_v2, (int)NUM(1));
    if (IS("device-reset")) return CALL(cuDevicePrimaryCtxReset_v2, (int)NUM(1));
    if (IS("context")) return CALL(cuCtxCreate_v2, OUT(1), 0, (int)NUM(2));
    if (IS("context-set")) return CALL(cuCtxSetCurrent, (void *)V(1));
    if (IS("green")) { /* green G CONTEXT: on 16 multiprocessors of device 0; its context becomes current */
        struct { char bytes[144]; } all, part;
        unsigned groups = 1;
        void *description;
        if ((code = CALL(cuDeviceGetDevResource, 0, &all, 1))) return code;
        if ((code = CALL(cuDevSmResourceSplitByCount, &part, &groups, &all, (void *)0, 0, 16))) return code;
        if ((code = CALL(cuDevResourceGenerateDesc, &description, &part, 1))) return code;
        if ((code = CALL(cuGreenCtxCreate, OUT(1), description, 0, 1))) return code;
        if ((code = CALL(cuCtxFromGreenCtx, OUT(2), (void *)V(1)))) return code;
        return CALL(cuCtxSetCurrent, (void *)V(2));
    }
    if (IS("green-stream")) return CALL(cuGreenCtxStreamCreate, OUT(1), (void *)V(2), 1, 0);
    if (IS("green-destroy")) return CALL(cuGreenCtxDestroy, (void *)V(1));
    if (IS("submit")) return CALL(cuMemsetD8Async, V(1), 1, (size_t)1, argc > 2 ? (void *)V(2) : (void *)0);
    if (IS("lock")) return CALL(cuCheckpointProcessLock, (int)(argc > 1 ? NUM(1) : getpid()), (void *)0);
    if (IS("unlock")) return CALL(cuCheckpointProcessUnlock, (int)(argc > 1 ? NUM(1) : getpid()), (void *)0);
    if (IS("call")) return ((int (*)())find(driver, argv[1]))((u64)NUM(2), (u64)(argc > 3 ? NUM(3) : 0)); /* plain numbers */
    if (IS("context-attach")) return CALL(cuCtxAttach, OUT(1), 0u);
    if (IS("context-detach")) return CALL(cuCtxDetach, (void *)V(1));
    if (IS("context-destroy")) return CALL(cuCtxDestroy_v2, (void *)V(1));

    if (IS("alloc")) return CALL(cuMemAlloc_v2, OUT(1), (size_t)NUM(2));
    if (IS("alloc-in-callback")) {
        void *stream, *context;
        if ((code = CALL(cuCtxGetCurrent, &context))) return code;
        asked.bytes = NUM(2);
        if ((code = CALL(cuStreamCreate, &stream, 1))) return code;
        if ((code = CALL(cuLaunchHostFunc, stream, ask_in_callback, context))) return code;
        if ((code = CALL(cuStreamSynchronize, stream))) return code;
        *OUT(1) = asked.address;
        return asked.code;
    }
    if (IS("load")) return dlopen(argv[1], RTLD_NOW) ? 0 : 9997;
    if (IS("alloc-null")) return CALL(cuMemAlloc_v2, (void *)0, (size_t)NUM(1));
    if (IS("managed")) return CALL(cuMemAllocManaged, OUT(1), (size_t)NUM(2), 1);
    if (IS("pitch")) {
        code = CALL(cuMemAllocPitch_v2, OUT(1), &one, (size_t)NUM(2), (size_t)NUM(3), 4);
        sprintf(more, " %zu", one);
        return code;
    }
    if (IS("free")) return CALL(cuMemFree_v2, V(1));
    if (IS("free-address")) return CALL(cuMemFree_v2, NUM(1));

    if (IS("range")) { /* offset of the address in the range, and the range's bytes */
        u64 base = 0;
        code = CALL(cuMemGetAddressRange_v2, &base, &one, V(1) + NUM(2));
        sprintf(more, " %llu %zu", V(1) + NUM(2) - base, one);
        return code;
    }
    if (IS("attribute")) { /* attribute A WHICH */
        u64 value = 0;
        code = CALL(cuPointerGetAttribute, &value, (unsigned)NUM(2), V(1));
        sprintf(more, " %llu", value);
        return code;
    }
    if (IS("attributes")) { /* context, range and type in one call */
        unsigned which[4] = {1, 11, 12, 2};
        u64 values[4] = {0};
        void *places[4] = {&values[0], &values[1], &values[2], &values[3]};
        code = CALL(cuPointerGetAttributes, 4u, which, places, V(1));
        sprintf(more, " %llu %llu %llu %llu", values[0], values[1], values[2], values[3]);
        return code;
    }
    if (IS("access")) { /* access A DEVICE */
        int place[2] = {1, (int)NUM(2)};
        u64 flags = 0;
        code = CALL(cuMemGetAccess, &flags, place, V(1));
        sprintf(more, " %llu", flags);
        return code;
    }
    if (IS("peer")) return CALL(cuCtxEnablePeerAccess, (void *)V(1), 0u);
    if (IS("context-current")) return CALL(cuCtxGetCurrent, OUT(1));
    if (IS("async")) return CALL(cuMemAllocAsync, OUT(1), (size_t)NUM(2), (void *)0);
    if (IS("async-ptsz")) return CALL(cuMemAllocAsync_ptsz, OUT(1), (size_t)NUM(2), (void *)0);
    if (IS("free-async")) return CALL(cuMemFreeAsync, V(1), (void *)0);
    if (IS("free-async-ptsz")) return CALL(cuMemFreeAsync_ptsz, V(1), (void *)0);
    if (IS("pool")) {
        pool_props.type = 1, pool_props.loc_type = 1, pool_props.loc_id = NUM(2), pool_props.max = NUM(3);
        return CALL(cuMemPoolCreate, OUT(1), &pool_props);
    }
    if (IS("pool-host")) {
        pool_props.type = 1, pool_props.loc_type = 2, pool_props.loc_id = 0, pool_props.max = 0;
        return CALL(cuMemPoolCreate, OUT(1), &pool_props);
    }
    if (IS("pool-in") || IS("pool-default-in")) { /* pool-in POOL KIND PLACE ID */
        int place[2] = {(int)NUM(3), (int)NUM(4)};
        if (IS("pool-default-in")) return CALL(cuMemGetDefaultMemPool, OUT(1), place, (int)NUM(2));
        pool_props.type = NUM(2), pool_props.loc_type = NUM(3), pool_props.loc_id = NUM(4), pool_props.max = 0;
        return CALL(cuMemPoolCreate, OUT(1), &pool_props);
    }
    if (IS("pool-shared")) { /* exports to other processes */
        pool_props.type = 1, pool_props.handles = 1, pool_props.loc_type = 1, pool_props.loc_id = NUM(2), pool_props.max = 0;
        code = CALL(cuMemPoolCreate, OUT(1), &pool_props);
        return pool_props.handles = 0, code;
    }
    if (IS("pool-export")) return *OUT(1) = 0, CALL(cuMemPoolExportToShareableHandle, OUT(1), (void *)V(2), 1, (u64)0);
    if (IS("pool-import")) return CALL(cuMemPoolImportFromShareableHandle, OUT(1), V(2), 1, (u64)0);
    if (IS("pool-export-pointer")) return CALL(cuMemPoolExportPointer, shown, V(1));
    if (IS("pool-import-pointer")) return CALL(cuMemPoolImportPointer, OUT(1), (void *)V(2), shown);
    if (IS("pool-alloc-in")) return CALL(cuMemAllocFromPoolAsync, OUT(1), (size_t)NUM(3), (void *)V(2), (void *)V(4));
    if (IS("async-in")) return CALL(cuMemAllocAsync, OUT(1), (size_t)NUM(2), (void *)V(3));
    if (IS("free-async-in")) return CALL(cuMemFreeAsync, V(1), (void *)V(2));
    if (IS("context-none")) return CALL(cuCtxSetCurrent, (void *)0);
    if (IS("pool-default")) return CALL(cuDeviceGetDefaultMemPool, OUT(1), (int)NUM(2));
    if (IS("pool-current")) return CALL(cuDeviceSetMemPool, (int)NUM(2), (void *)V(1));
    if (IS("pool-current-in")) { /* pool-current-in POOL KIND PLACE ID */
        int place[2] = {(int)NUM(3), (int)NUM(4)};
        return CALL(cuMemSetMemPool, place, (int)NUM(2), (void *)V(1));
    }
    if (IS("pool-alloc")) return CALL(cuMemAllocFromPoolAsync, OUT(1), (size_t)NUM(3), (void *)V(2), (void *)0);
    if (IS("pool-keep")) {
        u64 threshold = NUM(2);
        return CALL(cuMemPoolSetAttribute, (void *)V(1), 4, &threshold);
    }
    if (IS("pool-size")) {
        u64 reserved = 0, used = 0;
        if ((code = CALL(cuMemPoolGetAttribute, (void *)V(1), 5, &reserved))) return code;
        code = CALL(cuMemPoolGetAttribute, (void *)V(1), 7, &used);
        sprintf(more, " %llu %llu", reserved, used);
        return code;
    }
    if (IS("synchronize")) return CALL(cuCtxSynchronize);
    if (IS("pool-trim")) return CALL(cuMemPoolTrimTo, (void *)V(1), (size_t)NUM(2));
    if (IS("pool-destroy")) return CALL(cuMemPoolDestroy, (void *)V(1));

    if (IS("alloc-while-destroying")) { /* alloc-while-destroying A BYTES POOL: another thread destroys it while its size is asked for */
        inside.handle = V(3);
        *(void (**)(void))find(driver, "odd_in_pool_size") = destroy_pool_inside;
        if ((code = CALL(cuMemAlloc_v2, OUT(1), (size_t)NUM(2)))) return code;
        return pthread_join(inside.thread, NULL);
    }
    if (IS("pool-destroy-while-allocating")) { /* another thread allocates, and names no pool */
        *(void (**)(void))find(driver, "odd_in_pool_destroy") = alloc_async_inside;
        return CALL(cuMemPoolDestroy, (void *)V(1));
    }
    if (IS("device-release-while-freeing")) { /* device-release-while-freeing DEVICE A: another thread frees */
        inside.handle = V(2);
        *(void (**)(void))find(driver, "odd_in_release") = free_inside;
        return CALL(cuDevicePrimaryCtxRelease_v2, (int)NUM(1));
    }
    if (IS("odd-wrong")) return sprintf(more, " %d", *(int *)find(driver, "odd_wrong")), 0;

    if (IS("create")) {
        physical.handles = 1; /* exportable to a file */
        physical.type = 1, physical.loc_type = 1, physical.loc_id = NUM(3);
        return CALL(cuMemCreate, OUT(1), (size_t)NUM(2), &physical, (u64)0);
    }
    if (IS("release")) return CALL(cuMemRelease, V(1));
    if (IS("reserve")) return CALL(cuMemAddressReserve, OUT(1), (size_t)NUM(2), (size_t)0, (u64)0, (u64)0);
    if (IS("map")) return CALL(cuMemMap, V(1) + NUM(2), (size_t)NUM(3), (size_t)0, V(4), (u64)0);
    if (IS("unmap")) return CALL(cuMemUnmap, V(1) + NUM(2), (size_t)NUM(3));
    if (IS("retain")) return CALL(cuMemRetainAllocationHandle, OUT(1), (void *)(V(2) + NUM(3)));

    if (IS("export")) return *OUT(1) = 0, CALL(cuMemExportToShareableHandle, OUT(1), V(2), 1, (u64)0);
    if (IS("import")) return CALL(cuMemImportFromShareableHandle, OUT(1), V(2), 1);
    if (IS("export-fabric")) return CALL(cuMemExportToShareableHandle, fabric, V(1), 8, (u64)0);
    if (IS("import-fabric")) return CALL(cuMemImportFromShareableHandle, OUT(1), fabric, 8);
    if (IS("multicast")) { /* multicast TEAM DEVICES BYTES */
        team.devices = NUM(2), team.size = NUM(3);
        return CALL(cuMulticastCreate, OUT(1), &team);
    }
    if (IS("multicast-add")) return CALL(cuMulticastAddDevice, V(1), (int)NUM(2));
    if (IS("bind")) return CALL(cuMulticastBindMem, V(1), (size_t)NUM(2), V(3), (size_t)0, (size_t)NUM(4), (u64)0);
    if (IS("bind-for")) return CALL(cuMulticastBindMem_v2, V(1), (int)NUM(5), (size_t)NUM(2), V(3), (size_t)0, (size_t)NUM(4), (u64)0);
    if (IS("bind-at")) return CALL(cuMulticastBindAddr, V(1), (size_t)NUM(2), V(3) + NUM(4), (size_t)NUM(5), (u64)0);
    if (IS("unbind")) return CALL(cuMulticastUnbind, V(1), (int)NUM(2), (size_t)NUM(3), (size_t)NUM(4));

    /* copies of several kinds: TO FROM BYTES, in the stream S of `stream S` */
    if (IS("copy-batch")) {
        u64 to[2] = {V(1), V(1) + NUM(3)}, from[2] = {V(2), V(2)};
        size_t sizes[2] = {NUM(3), NUM(3) / 2}, first = 0, wrong = 0;
        struct { int order, from[2], to[2]; unsigned flags; } how = {1, {1, 0}, {1, 0}, 0};
        return CALL(cuMemcpyBatchAsync, to, from, sizes, (size_t)2, &how, &first, (size_t)1, &wrong, (void *)V(4));
    }
    if (IS("copy-blocks") || IS("copy-block")) { /* 4 x 3 x 2 elements of an array, and the same number of bytes */
        memset(blocks, 0, sizeof blocks);
        for (int i = 0; i < 2; i++) {
            blocks[i].from.type = blocks[i].to.type = 1, blocks[i].from.at[0] = V(2), blocks[i].to.at[0] = V(1);
            blocks[i].width = 4, blocks[i].height = 3, blocks[i].depth = 2, blocks[i].order = 1;
        }
        blocks[0].to.type = 2, blocks[0].to.at[0] = V(3);
        if (IS("copy-block")) return CALL(cuMemcpy3DWithAttributesAsync, blocks, (u64)0, (void *)V(4));
        return CALL(cuMemcpy3DBatchAsync_v2, (size_t)2, blocks, (u64)0, (void *)V(4));
    }
    if (IS("copy-fabric")) { /* an address to a logical endpoint, and null to an address */
        struct { struct { unsigned type; u64 at[2]; } from, to; size_t bytes; unsigned flags; } ops[2] = {
            {{1, {V(2)}}, {2, {7, 0}}, NUM(3), 0}, {{1, {V(2)}}, {1, {V(1)}}, 0, 0}};
        return CALL(cuFabricCpyBatchAsync, (size_t)2, ops, (u64)0, (void *)V(4));
    }
    if (IS("copy-attributes")) return CALL(cuMemcpyWithAttributesAsync, V(1), V(2), (size_t)NUM(3), (void *)0, (void *)V(4));
    if (IS("prefetch-batch") || IS("discard-batch") || IS("renew-batch")) {
        u64 at[2] = {V(1), V(1) + NUM(2)};
        size_t sizes[2] = {NUM(2), NUM(2)}, first = 0;
        int place[2] = {1, 0};
        if (IS("discard-batch")) return CALL(cuMemDiscardBatchAsync, at, sizes, (size_t)2, (u64)0, (void *)V(3));
        if (IS("prefetch-batch")) return CALL(cuMemPrefetchBatchAsync, at, sizes, (size_t)2, place, &first, (size_t)1, (u64)0, (void *)V(3));
        return CALL(cuMemDiscardAndPrefetchBatchAsync, at, sizes, (size_t)2, place, &first, (size_t)1, (u64)0, (void *)V(3));
    }

    /* the calls from before CUDA 3.2, 32 bits wide */
    if (IS("old-alloc")) return *OUT(1) = 0, CALL(cuMemAlloc, OUT(1), (unsigned)NUM(2));
    if (IS("old-pitch")) {
        unsigned pitch = 0;
        *OUT(1) = 0;
        code = CALL(cuMemAllocPitch, OUT(1), &pitch, (unsigned)NUM(2), (unsigned)NUM(3), 4);
        sprintf(more, " %u", pitch);
        return code;
    }
    if (IS("old-free")) return CALL(cuMemFree, (unsigned)V(1));
    if (IS("old-array")) {
        struct { unsigned w, h, format, channels; } old = {NUM(2), NUM(3), NUM(4), NUM(5)};
        return CALL(cuArrayCreate, OUT(1), &old);
    }
    if (IS("old-info")) {
        unsigned all[4] = {0, 7, 0, 7};
        code = CALL(cuMemGetInfo, &all[0], &all[2]);
        sprintf(more, " %u %u %u", all[0], all[2], all[1] + all[3]);
        return code;
    }
    if (IS("old-copies")) {
        int word = 0;
        struct { unsigned x, y, kind; const void *host; unsigned device; void *array; unsigned pitch; } end = {0};
        struct { unsigned x, y, kind; const void *h; unsigned d; void *a; unsigned p, x2, y2, kind2; void *h2; unsigned d2; void *a2; unsigned p2, w, hgt; } flat2 = {0};
        (void)end, flat2.w = 10, flat2.hgt = 3;
        if ((code = CALL(cuMemcpyHtoD, (unsigned)V(1), &word, 4u)) || (code = CALL(cuMemcpyDtoH, &word, (unsigned)V(1), 4u))) return code;
        if ((code = CALL(cuMemcpyHtoDAsync, (unsigned)V(1), &word, 4u, (void *)0)) || (code = CALL(cuMemcpy2D, &flat2))) return code;
        return CALL(cuMemsetD8, (unsigned)V(1), 1, 4u);
    }

    if (IS("array")) {
        flat.w = NUM(2), flat.h = NUM(3), flat.format = NUM(4), flat.channels = NUM(5);
        return CALL(cuArrayCreate_v2, OUT(1), &flat);
    }
    if (IS("array3d") || IS("mipmapped")) {
        deep.w = NUM(2), deep.h = NUM(3), deep.d = NUM(4);
        deep.format = NUM(5), deep.channels = NUM(6), deep.flags = NUM(7);
        if (IS("array3d")) return CALL(cuArray3DCreate_v2, OUT(1), &deep);
        return CALL(cuMipmappedArrayCreate, OUT(1), &deep, (unsigned)NUM(8));
    }
    if (IS("map-array") || IS("unmap-array")) {
        memset(&tile, 0, sizeof tile);
        tile.array = V(1), tile.part[1] = NUM(2), tile.operation = IS("map-array") ? 1 : 2;
        if (IS("map-array")) tile.handle = V(3);
        return CALL(cuMemMapArrayAsync, &tile, 1, (void *)0);
    }
    if (IS("external")) {
        external.type = 1, external.size = NUM(2);
        return CALL(cuImportExternalMemory, OUT(1), &external);
    }
    if (IS("external-destroy")) return CALL(cuDestroyExternalMemory, (void *)V(1));
    if (IS("array-destroy")) return CALL(cuArrayDestroy, (void *)V(1));
    if (IS("mipmapped-destroy")) return CALL(cuMipmappedArrayDestroy, (void *)V(1));

    if (IS("host")) return CALL(cuMemAllocHost_v2, OUT(1), (size_t)NUM(2));
    if (IS("host-flags")) return CALL(cuMemHostAlloc, OUT(1), (size_t)NUM(2), 0);
    if (IS("host-write")) return *(volatile unsigned *)V(1) = (unsigned)NUM(2), 0; /* host-write A WORD */
    if (IS("host-free")) return CALL(cuMemFreeHost, (void *)V(1));
    if (IS("register")) {
        *OUT(1) = (u64)(uintptr_t)aligned_alloc(4096, NUM(2));
        return CALL(cuMemHostRegister_v2, (void *)V(1), (size_t)NUM(2), 0);
    }
    if (IS("unregister")) return CALL(cuMemHostUnregister, (void *)V(1));

    if (IS("ipc-get")) {
        struct handle handle;
        code = CALL(cuIpcGetMemHandle, &handle, V(1));
        more += sprintf(more, " ");
        for (int i = 0; i < 64; i++) more += sprintf(more, "%02x", (unsigned char)handle.bytes[i]);
        return code;
    }
    if (IS("ipc-open")) {
        struct handle handle;
        for (int i = 0; i < 64; i++) {
            char digits[3] = {argv[2][2 * i], argv[2][2 * i + 1], 0};
            handle.bytes[i] = (char)strtoul(digits, NULL, 16);
        }
        return ((int (*)(u64 *, struct handle, unsigned))find(driver, "cuIpcOpenMemHandle_v2"))(OUT(1), handle, 1);
    }
    if (IS("ipc-close")) return CALL(cuIpcCloseMemHandle, V(1));

    if (IS("graph")) return CALL(cuGraphCreate, OUT(1), 0);
    if (IS("graph-alloc")) { /* the second name is for the address */
        node.pool.type = 1, node.pool.loc_type = 1, node.pool.loc_id = 0, node.bytes = NUM(3);
        code = CALL(cuGraphAddMemAllocNode, OUT(1), (void *)V(2), (void *)0, (size_t)0, &node);
        *OUT(4) = node.dptr;
        return code;
    }
    if (IS("graph-free")) { /* graph-free GRAPH AFTER ADDRESS */
        void *after = (void *)V(2);
        return CALL(cuGraphAddMemFreeNode, OUT(4), (void *)V(1), &after, (size_t)(V(2) != 0), V(3));
    }
    if (IS("graph-move")) { /* graph-move INTO CHILD */
        memset(&any, 0, sizeof any);
        any.type = 4, any.words[0] = V(2), any.words[1] = 1;
        return CALL(cuGraphAddNode_v2, OUT(3), (void *)V(1), (void *)0, (void *)0, (size_t)0, &any);
    }
    if (IS("graph-clone")) return CALL(cuGraphClone, OUT(1), (void *)V(2));
    if (IS("graph-upload")) return CALL(cuGraphUpload, (void *)V(1), (void *)V(2));
    if (IS("graph-launch")) {
        if ((code = CALL(cuGraphLaunch, (void *)V(1), (void *)V(2)))) return code;
        return CALL(cuStreamSynchronize, (void *)V(2));
    }
    if (IS("graph-submit")) return CALL(cuGraphLaunch, (void *)V(1), (void *)V(2)); /* is not waited for */
    if (IS("stream-hold")) return CALL(cuStreamWaitValue32_v2, (void *)V(1), V(2), (unsigned)NUM(3), 1u); /* until the word at A is N */
    if (IS("graph-trim")) return CALL(cuDeviceGraphMemTrim, 0);
    if (IS("graph-kept")) {
        u64 reserved = 0;
        code = CALL(cuDeviceGetGraphMemAttribute, 0, 2, &reserved);
        sprintf(more, " %llu", reserved);
        return code;
    }
    if (IS("graph-instantiate-uploading")) {
        struct { u64 flags, stream, node; unsigned result; } how = {2, V(3), 7, 7};
        code = CALL(cuGraphInstantiateWithParams, OUT(1), (void *)V(2), &how);
        sprintf(more, " %u", how.result);
        return code;
    }
    if (IS("graph-instantiate-freeing")) return CALL(cuGraphInstantiateWithFlags, OUT(1), (void *)V(2), (u64)1);
    if (IS("graph-instantiate")) return CALL(cuGraphInstantiateWithFlags, OUT(1), (void *)V(2), (u64)0);
    if (IS("graph-destroy")) return CALL(cuGraphDestroy, (void *)V(1));
    if (IS("graph-exec-destroy")) return CALL(cuGraphExecDestroy, (void *)V(1));
    if (IS("stream")) return CALL(cuStreamCreate, OUT(1), 1);
    if (IS("stream-blocking")) return CALL(cuStreamCreate, OUT(1), 0); /* the legacy stream waits for it */
    if (IS("stream-destroy")) return CALL(cuStreamDestroy_v2, (void *)V(1));
    if (IS("busy")) return CALL(cuLaunchHostFunc, (void *)V(1), sleep_in_callback, (void *)(uintptr_t)NUM(2)); /* busy STREAM MS */
    if (IS("capture")) return CALL(cuStreamBeginCapture_v2, (void *)V(1), 2);
    if (IS("capture-alloc")) return CALL(cuMemAllocAsync, OUT(1), (size_t)NUM(2), (void *)V(3));
    if (IS("capture-free")) return CALL(cuMemFreeAsync, V(1), (void *)V(2));
    if (IS("capture-cig")) return CALL(cuStreamBeginCaptureToCig, (void *)V(1), (void *)0);
    if (IS("capture-cig-end")) return CALL(cuStreamEndCaptureToCig, (void *)V(1));
    if (IS("capture-end")) return CALL(cuStreamEndCapture, (void *)V(1), OUT(2));

    if (IS("info")) {
        code = CALL(cuMemGetInfo_v2, &one, &two);
        sprintf(more, " %zu %zu", one, two);
        return code;
    }
    if (IS("info-null")) return CALL(cuMemGetInfo_v2, (void *)0, (void *)0);
    if (IS("info-free")) {
        code = CALL(cuMemGetInfo_v2, &one, (void *)0);
        sprintf(more, " %zu", one);
        return code;
    }
    if (IS("total")) {
        code = CALL(cuDeviceTotalMem_v2, &one, (int)NUM(1));
        sprintf(more, " %zu", one);
        return code;
    }
    if (IS("nvml")) {
        struct { u64 total, free, used; } v1;
        struct { unsigned version; u64 total, reserved, free, used; } v2;
        void *device;
        nvml = nvml ? nvml : dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if ((code = NVML(nvmlInit_v2)) || (code = NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned)NUM(1), &device))) return code;
        v2.version = sizeof v2 | 2 << 24;
        if ((code = NVML(nvmlDeviceGetMemoryInfo, device, &v1))) return code;
        code = NVML(nvmlDeviceGetMemoryInfo_v2, device, &v2);
        sprintf(more, " %llu %llu %llu %llu %llu %llu %llu", v1.total, v1.free, v1.used, v2.total, v2.reserved, v2.free, v2.used);
        return code;
    }
    if (IS("module")) return CALL(cuModuleLoadData, OUT(1), ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry one() { ret; }\n.visible .entry two() { ret; }\n"); /* with kernels `one` and `two` */
    if (IS("module-unload")) return CALL(cuModuleUnload, (void *)V(1));
    if (IS("kernel")) return CALL(cuModuleGetFunction, OUT(1), (void *)V(2), argv[3]); /* kernel K MODULE NAME */
    if (IS("kernel-attribute")) return CALL(cuFuncGetAttribute, &one, 0, (void *)V(1));
    if (IS("kernel-occupancy")) return CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &one, (void *)V(1), 32, (size_t)0);
    if (IS("kernel-load")) return CALL(cuFuncLoad, (void *)V(1));
    if (IS("launch") || IS("launch-ptsz")) { /* launch K, or launch K STREAM */
        void *stream = argc > 2 ? (void *)V(2) : (void *)0;
        if (IS("launch")) return CALL(cuLaunchKernel, (void *)V(1), 1, 1, 1, 1, 1, 1, 0, stream, (void *)0, (void *)0);
        return CALL(cuLaunchKernel_ptsz, (void *)V(1), 1, 1, 1, 1, 1, 1, 0, stream, (void *)0, (void *)0);
    }
    if (IS("graph-kernel")) { /* graph-kernel GRAPH K */
        struct { void *function; unsigned grid[3], block[3], shared; void **params, **extra; void *kern, *ctx; } kernel = {
            (void *)V(2), {1, 1, 1}, {1, 1, 1}, 0, 0, 0, 0, 0};
        void *made;
        return CALL(cuGraphAddKernelNode_v2, &made, (void *)V(1), (void *)0, (size_t)0, &kernel);
    }
    if (IS("write")) return CALL(cuMemsetD32_v2, V(1), (unsigned)NUM(2), (size_t)NUM(3)); /* write A WORD HOW-MANY */
    if (IS("write-in")) return CALL(cuMemsetD32Async, V(1), (unsigned)NUM(2), (size_t)NUM(3), (void *)V(4));
    if (IS("read")) { /* the word at A, and the last one of this many */
        unsigned words[2] = {0};
        if ((code = CALL(cuMemcpyDtoH_v2, &words[0], V(1), (size_t)4))) return code;
        code = CALL(cuMemcpyDtoH_v2, &words[1], V(1) + 4 * (NUM(2) - 1), (size_t)4);
        sprintf(more, " %u %u", words[0], words[1]);
        return code;
    }
    if (IS("count")) { /* counts the words equal to W among HOW-MANY at A: count A W HOW-MANY */
        unsigned word = (unsigned)NUM(2), *words = malloc(4 * NUM(3));
        u64 right = 0;
        if (!(code = CALL(cuMemcpyDtoH_v2, words, V(1), (size_t)(4 * NUM(3)))))
            for (size_t i = 0; i < NUM(3); i++) right += words[i] == word;
        free(words);
        sprintf(more, " %llu", right);
        return code;
    }
    if (IS("scribble")) { /* writes random bytes to nothing, all or some ranges of A, which is zero before: scribble A BYTES SEED */
        size_t bytes = NUM(2), times;
        unsigned char *now = expected(argv[1], bytes);
        srandom((unsigned)NUM(3));
        times = random() % 3;
        for (size_t n = times == 2 ? 1 + random() % 8 : times; n; n--) {
            size_t start = times == 1 ? 0 : (size_t)random() % bytes, length = times == 1 ? bytes : 1 + (size_t)random() % 100000;
            int is_zero = random() % 4 == 0;
            if (length > bytes - start) length = bytes - start;
            for (size_t i = start; i < start + length; i++) now[i] = is_zero ? 0 : random();
            if ((code = CALL(cuMemcpyHtoD_v2, V(1) + start, now + start, length))) return code;
        }
        return 0;
    }
    if (IS("same")) { /* the bytes of A that are not as they were written: same A BYTES */
        size_t bytes = NUM(2);
        unsigned char *now = expected(argv[1], bytes), *found = malloc(bytes);
        u64 wrong = 0;
        if (!(code = CALL(cuMemcpyDtoH_v2, found, V(1), bytes)))
            for (size_t i = 0; i < bytes; i++) wrong += found[i] != now[i];
        free(found);
        sprintf(more, " %llu", wrong);
        return code;
    }
    if (IS("in")) { /* in REST: in the context c */
        if ((code = CALL(cuCtxSetCurrent, (void *)*named("c")))) return code;
        return run(argc - 1, argv + 1, more);
    }
    if (IS("in-a-thread")) { /* the rest of the line, in a thread that has made no call */
        pthread_t thread;
        struct words words = {argc - 1, argv + 1, more, 0};
        if (pthread_create(&thread, NULL, run_words, &words)) return 9997;
        pthread_join(thread, NULL);
        return words.code;
    }
    if (IS("alloc-in-two")) { /* alloc-in-two BYTES BYTES, or … STREAM: in two threads, the second begins later; replies with both codes */
        static struct late both[2];
        pthread_t threads[2];
        void *context;
        if ((code = CALL(cuCtxGetCurrent, &context))) return code;
        for (int i = 0; i < 2; i++) {
            both[i] = (struct late){context, argc > 3 ? (void *)V(3) : (void *)0, 0, NUM(i + 1), 0, 0, 0};
            if (pthread_create(&threads[i], NULL, alloc_in_thread, &both[i])) return 9997;
            usleep(100000);
        }
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        sprintf(more, " %d %d", both[0].code, both[1].code);
        return 0;
    }
    if (IS("free-later")) { /* free-later A MS: in a thread that has called the driver and sleeps for this time */
        static struct late late;
        pthread_t thread;
        if ((code = CALL(cuCtxGetCurrent, &late.context))) return code;
        late.address = V(1), late.after_us = NUM(2) * 1000;
        if (pthread_create(&thread, NULL, free_in_thread, &late)) return 9997;
        while (!__atomic_load_n(&late.begun, __ATOMIC_ACQUIRE)) usleep(1000);
        return pthread_detach(thread);
    }
    if (IS("in-a-lock")) { /* a thread that has called the driver waits for a lock that this thread holds */
        pthread_t thread;
        static struct late late;
        if ((code = CALL(cuCtxGetCurrent, &late.context))) return code;
        pthread_mutex_lock(&lock);
        if (pthread_create(&thread, NULL, lock_in_thread, &late)) return 9997;
        return pthread_detach(thread);
    }
    if (IS("in-a-thread-of")) { /* in-a-thread-of LIBRARY REST: in a thread that the library starts */
        void *library = dlopen(argv[1], RTLD_NOW);
        struct words words = {argc - 2, argv + 2, more, 0};
        if (((int (*)())find(library, "run_in_a_thread"))(run_words, &words)) return 9997;
        return words.code;
    }
    if (IS("fork-free")) {
        int status = 0;
        pid_t child = fork();
        if (!child) _exit(CALL(cuMemFree_v2, V(1)));
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 9998;
    }
    return 9999;
}

int main(void) {
    char line[512];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    while (fgets(line, sizeof line, stdin)) {
        char *argv[12] = {0}, more[1024] = "";
        int argc = 0;
        for (char *word = strtok(line, " \n"); word && argc < 12; word = strtok(NULL, " \n")) argv[argc++] = word;
        if (!argc) continue;
        if (IS("quit")) return 0;
        int code = run(argc, argv, more);
        printf("%d%s\n", code, more);
        fflush(stdout);
    }
    return 0;
}
