/* Leaves calls of the driver by a longjmp, as a timeout in a signal handler does, wherever the driver may call the program
 * back. The thread must be outside afterwards: a call that counts as nested would not be limited. A signal handler's own call
 * within a call is nested, on the thread's stack or on another. */
#include "who.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

static int (*allocate)(unsigned long *, size_t), (*release)(unsigned long), (*occupancy)(int *, int *, void *, void *, size_t, int);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static jmp_buf back;
static unsigned long kept;
static int nested;

static void leave(void) { longjmp(back, 1); }
static size_t leave_with_size(int threads) { leave(); return threads; }
static int launch_kernel(long kernel) { return launch((void *)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }

/* Further down the stack than the calls below, whose hooks have large frames in a debug build. */
static void __attribute__((noinline)) call(int place) {
    volatile char deep[8 << 10];
    deep[0] = 0;
    if (place == 0) occupancy(NULL, NULL, NULL, (void *)leave_with_size, 0, 0);
    if (place >= 1) launch_kernel(1); /* first through the slow path, then the fast one */
}

/* Returns the number of answers that are not as of a thread that is outside. */
static int is_inside(void) {
    unsigned long address;
    return (allocate(&address, 2 << 20) != 2) + (allocate(&address, 700 << 10) != 0) + (launch_kernel(16) != 0) + (release(address) != 0);
}

static int leaves(void) {
    int wrong = 0;
    for (volatile int place = 0; place < 4; place++) {
        if (setjmp(back) == 0) {
            call(place);
            wrong += 100;
        }
        wrong += is_inside();
    }
    return wrong;
}

/* More than the quota goes to the driver, as all that is called within a call. */
static void within(int signal) { nested += allocate(&kept, 2 << 20) == 0; }
static void raise_one(void) { raise(SIGUSR1); }

/* `above` lies above the thread's stack, where a call looks like one outside of all calls. */
static void *run(void *above) {
    stack_t other = {.ss_sp = above, .ss_size = 64 << 10};
    struct sigaction action = {.sa_handler = within};
    void (**inside)(void) = dlsym(driver(), "noop_inside");
    int wrong;
    *inside = leave;
    wrong = leaves();
    *inside = raise_one;
    sigaction(SIGUSR1, &action, NULL);
    launch_kernel(1);
    sigaltstack(&other, NULL);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, NULL);
    launch_kernel(1);
    printf("wrong %d, nested %d, then %d\n", wrong, nested, is_inside());
    return NULL;
}

int main(void) {
    void *cuda = driver();
    char above[64 << 10];
    pthread_t thread;
    setenv("GPUSHARE_MEMORY", "1MiB", 1);
    allocate = dlsym(cuda, "cuMemAlloc_v2");
    release = dlsym(cuda, "cuMemFree_v2");
    occupancy = dlsym(cuda, "cuOccupancyMaxPotentialBlockSize");
    launch = dlsym(cuda, "cuLaunchKernel");
    ((int (*)(unsigned))dlsym(cuda, "cuInit"))(0);
    pthread_create(&thread, NULL, run, above);
    pthread_join(thread, NULL);
    return 0;
}
