/* Allocates at the same moment as its competitors, by every function, and adds up the grants of all.
 *
 *     race FILE PARTIES FIRST COUNT ROUNDS LIMIT
 *
 * Of PARTIES competitors this process is COUNT threads, numbered from FIRST; all share FILE. Number 0 prints how
 * often the sum was over LIMIT, the largest sum, and how many allocations were granted and denied. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef unsigned long long u64;
enum { PIECES = 8, MIB = 1 << 20 };

static struct shared {
    atomic_uint arrived, phase;
    atomic_ullong held[64], granted, denied;
} *shared;
static unsigned parties, rounds;
static u64 limit;
static void *driver, *context;

#define CALL(function, ...) ((int (*)())dlsym(driver, #function))(__VA_ARGS__)

static void meet(void) {
    unsigned phase = atomic_load(&shared->phase);
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == parties) {
        atomic_store(&shared->arrived, 0);
        atomic_store(&shared->phase, phase + 1);
        syscall(SYS_futex, &shared->phase, FUTEX_WAKE, 1 << 20, NULL, NULL, 0);
        return;
    }
    for (int i = 0; i < 8 && atomic_load(&shared->phase) == phase; i++) sched_yield();
    while (atomic_load(&shared->phase) == phase)
        syscall(SYS_futex, &shared->phase, FUTEX_WAIT, phase, NULL, NULL, 0);
}

struct piece { u64 handle, bytes; int way; };

static int take(struct piece *piece, unsigned *seed) {
    struct { unsigned type, handles; int loc_type, loc_id; void *meta; char rest[8]; } physical = {1, 0, 1, 0, 0, {0}};
    struct { size_t w, h; unsigned format, channels; } flat = {0, 0, 0x20, 4};
    size_t bytes = 1 + (size_t)rand_r(seed) % (limit / 8), pitch = 0;
    piece->way = rand_r(seed) % 10;
    switch (piece->way) {
    case 0: piece->bytes = bytes; return CALL(cuMemAlloc_v2, &piece->handle, bytes);
    case 1: piece->bytes = bytes; return CALL(cuMemAllocManaged, &piece->handle, bytes, 1);
    case 2: piece->bytes = bytes; return CALL(cuMemAllocAsync, &piece->handle, bytes, (void *)0);
    case 3:
        piece->bytes = bytes = (bytes / (2 * MIB) + 1) * 2 * MIB;
        return CALL(cuMemCreate, &piece->handle, bytes, &physical, (u64)0);
    case 4:
        flat.w = 64, flat.h = bytes / 1024 + 1;
        piece->bytes = flat.w * flat.h * 16;
        return CALL(cuArrayCreate_v2, &piece->handle, &flat);
    case 5: { /* by the launch of a graph that does not free it */
        struct { struct { unsigned type, handles; int loc_type, loc_id; void *sa; size_t max; char rest[56]; } pool;
                 const void *access; size_t count, bytes; u64 at; } node = {{1, 0, 1, 0, 0, 0, {0}}, 0, 0, bytes, 0};
        u64 graph = 0, exec = 0, made;
        CALL(cuGraphCreate, &graph, 0);
        CALL(cuGraphAddMemAllocNode, &made, graph, (void *)0, (size_t)0, &node);
        CALL(cuGraphInstantiateWithFlags, &exec, graph, (u64)0);
        int code = CALL(cuGraphLaunch, exec, (void *)0);
        CALL(cuGraphExecDestroy, exec);
        CALL(cuGraphDestroy, graph);
        piece->handle = node.at, piece->bytes = bytes;
        return code;
    }
    case 6: { /* from a named pool */
        u64 pool;
        CALL(cuDeviceGetDefaultMemPool, &pool, 0);
        return piece->bytes = bytes, CALL(cuMemAllocFromPoolAsync, &piece->handle, bytes, pool, (void *)0);
    }
    case 7: { /* mapped, and released at once */
        piece->bytes = bytes = (bytes / (2 * MIB) + 1) * 2 * MIB;
        u64 memory;
        int code = CALL(cuMemCreate, &memory, bytes, &physical, (u64)0);
        if (code) return code;
        CALL(cuMemAddressReserve, &piece->handle, bytes, (size_t)0, (u64)0, (u64)0);
        code = CALL(cuMemMap, piece->handle, bytes, (size_t)0, memory, (u64)0);
        CALL(cuMemRelease, memory);
        return code;
    }
    case 8: { /* layers with a second mip level */
        struct { size_t w, h, d; unsigned format, channels, flags; } deep = {64, 16, bytes / 5120 + 1, 0x20, 1, 1};
        piece->bytes = deep.d * (64 * 16 + 32 * 8) * 4;
        return CALL(cuMipmappedArrayCreate, &piece->handle, &deep, 2u);
    }
    default: {
        int code = CALL(cuMemAllocPitch_v2, &piece->handle, &pitch, (size_t)1000, bytes / 1024 + 1, 4);
        piece->bytes = pitch * (bytes / 1024 + 1);
        return code;
    }
    }
}

static int give(struct piece *piece) {
    switch (piece->way) {
    case 2: case 6: return CALL(cuMemFreeAsync, piece->handle, (void *)0);
    case 5: {
        int code = CALL(cuMemFree_v2, piece->handle);
        return code ? code : CALL(cuDeviceGraphMemTrim, 0);
    }
    case 7: {
        int code = CALL(cuMemUnmap, piece->handle, (size_t)piece->bytes);
        return code ? code : CALL(cuMemAddressFree, piece->handle, (size_t)piece->bytes);
    }
    case 8: return CALL(cuMipmappedArrayDestroy, (void *)piece->handle);
    case 3: return CALL(cuMemRelease, piece->handle);
    case 4: return CALL(cuArrayDestroy, (void *)piece->handle);
    default: return CALL(cuMemFree_v2, piece->handle);
    }
}

static void *rival(void *number) {
    unsigned self = (unsigned)(uintptr_t)number, seed = self * 7919 + 1, over = 0;
    u64 most = 0;
    CALL(cuCtxSetCurrent, context);
    for (unsigned round = 0; round < rounds; round++) {
        struct piece pieces[PIECES];
        int count = 0;
        u64 held = 0;
        meet();
        for (int i = 0; i < PIECES; i++) {
            int code = take(&pieces[count], &seed);
            if (code == 0) {
                held += pieces[count++].bytes;
                atomic_fetch_add(&shared->granted, 1);
            } else if (code == 2) {
                atomic_fetch_add(&shared->denied, 1);
            } else {
                printf("failed %d way %d\n", code, pieces[count].way);
                exit(4);
            }
        }
        atomic_store(&shared->held[self], held);
        meet();
        if (self == 0) {
            u64 sum = 0;
            for (unsigned i = 0; i < parties; i++) sum += atomic_load(&shared->held[i]);
            over += sum > limit;
            most = sum > most ? sum : most;
        }
        meet();
        for (int i = 0; i < count; i++)
            if (give(&pieces[i])) exit(5);
    }
    if (self == 0) printf("%u %llu %llu %llu\n", over, most, atomic_load(&shared->granted), atomic_load(&shared->denied));
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    unsigned first = atoi(argv[3]), count = atoi(argv[4]);
    pthread_t threads[64];
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof *shared)) return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    parties = atoi(argv[2]), rounds = atoi(argv[5]), limit = strtoull(argv[6], NULL, 0);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (CALL(cuInit, 0) || CALL(cuDevicePrimaryCtxRetain, &context, 0)) return 3;
    for (unsigned i = 0; i < count; i++) pthread_create(&threads[i], NULL, rival, (void *)(uintptr_t)(first + i));
    for (unsigned i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("done\n");
    return 0;
}
