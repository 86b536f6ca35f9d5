/* Adds a reference to physical memory while another thread removes the last one, and keeps what the driver lets it keep.
 *
 *     references_race WAY PIECES ROUNDS
 *
 * WAY 0 retains a handle beside cuMemUnmap, WAY 1 maps beside cuMemRelease. Keeps memory until cuMemCreate is refused, or PIECES of
 * 2 MiB and one more are kept, then releases all. Prints the most that it kept at once, and how often cuMemCreate was refused. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long u64;
enum { PIECE = 2 << 20, MOST = 512 };

static void *driver, *context;
static atomic_int begun, near, done;
static int way, adds;
static u64 place, handle, added;

#define CALL(function, ...) ((int (*)())dlsym(driver, #function))(__VA_ARGS__)
#define MUST(function, ...) if (CALL(function, __VA_ARGS__)) { puts(#function); exit(1); }

static void wait_for(atomic_int *word, int value) {
    while (atomic_load(word) != value) sched_yield();
}

static void *other(void *arg) {
    CALL(cuCtxSetCurrent, context);
    for (int round = 1;; round++) {
        wait_for(&begun, round);
        if (handle == 0) return arg;
        atomic_store(&near, round);
        adds = (way == 0 ? CALL(cuMemRetainAllocationHandle, &added, (void *)place)
                         : CALL(cuMemMap, place, (u64)PIECE, (u64)0, handle, (u64)0)) == 0;
        atomic_store(&done, round);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    way = atoi(argv[1]);
    int pieces = atoi(argv[2]), rounds = atoi(argv[3]), kept = 0, most = 0, refused = 0;
    struct { unsigned type, handles; int loc_type, loc_id; void *meta; char rest[8]; } physical = {1, 0, 1, 0, 0, {0}};
    u64 space, handles[MOST];
    pthread_t thread;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    MUST(cuInit, 0)
    MUST(cuDevicePrimaryCtxRetain, &context, 0)
    MUST(cuCtxSetCurrent, context)
    MUST(cuMemAddressReserve, &space, (u64)MOST * PIECE, (u64)0, (u64)0, (u64)0)
    if (pieces + 1 >= MOST || pthread_create(&thread, NULL, other, NULL)) return 2;
    for (int round = 1; round <= rounds; round++) {
        int full = CALL(cuMemCreate, &handle, (u64)PIECE, &physical, (u64)0) != 0;
        if (full || kept > pieces) {
            refused += full;
            for (int i = 0; i < kept; i++)
                if (way == 0) { MUST(cuMemRelease, handles[i]) } else { MUST(cuMemUnmap, space + (u64)i * PIECE, (u64)PIECE) }
            kept = 0;
            if (full) MUST(cuMemCreate, &handle, (u64)PIECE, &physical, (u64)0)
        }
        place = space + (u64)kept * PIECE;
        if (way == 0) {
            MUST(cuMemMap, place, (u64)PIECE, (u64)0, handle, (u64)0)
            MUST(cuMemRelease, handle)
        }
        atomic_store(&begun, round);
        wait_for(&near, round);
        // Either comes first at times.
        for (volatile int turns = rand() % 3000; turns > 0; turns--) {}
        if (way == 0) { MUST(cuMemUnmap, place, (u64)PIECE) } else { MUST(cuMemRelease, handle) }
        wait_for(&done, round);
        if (adds) handles[kept++] = added;
        if (kept > most) most = kept;
    }
    handle = 0;
    atomic_store(&begun, rounds + 1);
    pthread_join(thread, NULL);
    printf("%d %d\n", most, refused);
}
