/* Leaves calls of the driver from within, by an exception and by the end of the thread, wherever the driver may call the
 * program back. The thread must be outside afterwards: a call that counts as nested would not be limited. */
extern "C" {
#include "who.h"
}
#include <pthread.h>

static int (*allocate)(unsigned long *, size_t), (*release)(unsigned long), (*occupancy)(int *, int *, void *, void *, size_t, int);
typedef int (*launch_t)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static launch_t launch;
static int place, kept;
static unsigned long *freed, left;
static bool ends;

struct Guard { ~Guard() { kept--; } };

static void leave() {
    Guard guard;
    kept++;
    if (ends) pthread_exit((void *)7);
    throw place;
}
static size_t leave_with_size(int) { leave(); return 0; }

static int launch_kernel(long kernel) { return launch((void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }

static void call(int place) {
    if (place == 0) occupancy(NULL, NULL, NULL, (void *)leave_with_size, 0, 0);
    if (place == 1) {
        unsigned long address;
        allocate(&address, 700 << 10);
        *freed = left = address;
        release(address);
    }
    if (place >= 2) launch_kernel(1); /* first through the slow path, then the fast one */
}

/* Returns the number of answers that are not as of a thread that is outside. Memory whose free was left is freed again. */
static int is_inside() {
    unsigned long address;
    if (left) release(left);
    left = 0;
    return (allocate(&address, 2 << 20) != 2) + (allocate(&address, 700 << 10) != 0) + (launch_kernel(16) != 0) + (release(address) != 0);
}

static int catches() {
    int wrong = 0;
    for (place = 0; place < 4; place++) {
        try {
            call(place);
            wrong += 100;
        } catch (int thrown) {
            wrong += thrown != place;
        }
        wrong += is_inside();
    }
    return wrong;
}
static void *in_a_thread(void *) { return (void *)(long)catches(); }
static void *ends_in(void *where) {
    if ((long)where == 3) launch_kernel(16);
    call((long)where);
    return NULL;
}

int main() {
    void *cuda = driver(), *end, *wrong;
    pthread_t thread;
    int ended = 0;
    setenv("GPUSHARE_MEMORY", "1MiB", 1);
    allocate = (int (*)(unsigned long *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    release = (int (*)(unsigned long))dlsym(cuda, "cuMemFree_v2");
    occupancy = (int (*)(int *, int *, void *, void *, size_t, int))dlsym(cuda, "cuOccupancyMaxPotentialBlockSize");
    launch = (launch_t)dlsym(cuda, "cuLaunchKernel");
    ((int (*)(unsigned))dlsym(cuda, "cuInit"))(0);
    *(void (**)())dlsym(cuda, "noop_inside") = leave;
    freed = (unsigned long *)dlsym(cuda, "noop_freed");
    pthread_create(&thread, NULL, in_a_thread, NULL);
    pthread_join(thread, &wrong);
    int here = catches();
    ends = true;
    for (long where = 0; where < 4; where++) {
        pthread_create(&thread, NULL, ends_in, (void *)where);
        pthread_join(thread, &end);
        ended += end == (void *)7;
        if (left) release(left);
        left = 0;
    }
    ends = false;
    printf("wrong %d %ld, ended %d, kept %d, then %d\n", here, (long)wrong, ended, kept, catches());
}
