/* A driver whose kernels take time: `gx` microseconds each, one after another in this process. It writes every
 * kernel's start and end to the file $TIMELINE, so that a test sees whether two processes ran at the same time. A
 * query or wait on a capturing stream invalidates its capture, as in the real driver. With $SIDE_BY_SIDE only the
 * kernels of one stream run one after another, so a stream may be busy long after a later one is done.
 * With $COLLECTIVES, a file that two processes share, and $RANK, 0 or 1, a kernel of more than a second (`gx` >
 * 1000000) is part of a collective: it runs `gx` - 1000000 microseconds from the time when the other process's
 * kernel of the same number runs too.
 * With $CAPTURE_NAPS a capture begins some time after the call, and the reply that the legacy stream does not
 * capture takes some time, so it is out of date when the caller gets it. A stream of a destroyed context ends the
 * process.
 * Built as libcuda.so.1. It has $DEVICES devices (default 1), each with a primary context and any number of others. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#ifdef CANCELS /* Built with -finstrument-functions: every function of the driver is a cancellation point. */
#define PLAIN __attribute__((no_instrument_function))
PLAIN void __cyg_profile_func_enter(void *function, void *caller) { pthread_testcancel(); }
PLAIN void __cyg_profile_func_exit(void *function, void *caller) {}
#endif
#define NOT_READY 600
#define CAPTURE_UNSUPPORTED 900
typedef int res;

struct stream { int device; struct context *context; int64_t until; int capturing, broken, nodes; };
struct context { int device, gone; int64_t until; struct stream legacy, per_thread; };
struct event { int64_t until; unsigned behind; };

static struct context contexts[8];
static int64_t device_until[8];
static int syncs, queries, capturing_now, all_broken, log_file = -1;
static __thread struct context *current;
static __thread int mode;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void wait_until(int64_t when) {
    struct timespec t = {when / 1000000000, when % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {}
}
static int device(void) { return current ? current->device : -1; }
static struct stream *of(void *handle, int twin) {
    if (handle == (void *)2 || (!handle && twin)) return &current->per_thread;
    if (handle == (void *)1 || !handle) return &current->legacy;
    return handle;
}

#define FOREVER (INT64_MAX / 2)
#define QUEUED 4096
#define MEETINGS 100000

/* Kernels whose times are not known yet, because an earlier one waits for the other process. */
static struct { unsigned micros; int64_t submitted; struct stream *stream; } queue[QUEUED];
static unsigned queue_head, queue_tail, meeting;
static _Atomic int64_t (*starts)[MEETINGS];
static int rank;
static int64_t last_end, ends[1 << 20];
static void timeline(int device, int64_t start, int64_t end);

/* Computes the times that are known by now; the caller holds the mutex. */
static void settle(void) {
    while (queue_head != queue_tail) {
        unsigned at = queue_head % QUEUED;
        int64_t start = queue[at].submitted > last_end ? queue[at].submitted : last_end;
        int64_t micros = queue[at].micros;
        struct stream *stream = queue[at].stream;
        if (micros > 1000000) {
            starts[rank][meeting] = start;
            int64_t other = starts[1 - rank][meeting];
            if (!other) return;
            if (start < other) start = other;
            micros -= 1000000;
            meeting++;
        }
        last_end = start + micros * 1000;
        ends[queue_head % (1 << 20)] = last_end;
        timeline(stream->device, start, last_end);
        queue_head++;
        if (queue_head == queue_tail) stream->until = stream->context->until = last_end;
    }
}
static void *settler(void *unused) {
    for (;;) {
        usleep(50);
        pthread_mutex_lock(&mutex);
        settle();
        pthread_mutex_unlock(&mutex);
    }
}
static void collectives(void) {
    const char *path = getenv("COLLECTIVES");
    if (!path || starts) return;
    int file = open(path, O_RDWR | O_CREAT, 0600);
    size_t size = sizeof(int64_t) * MEETINGS * 2;
    if (file < 0 || ftruncate(file, size)) abort();
    starts = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (starts == MAP_FAILED) abort();
    close(file);
    rank = atoi(getenv("RANK"));
    pthread_t thread;
    pthread_create(&thread, NULL, settler, NULL);
}
/* Returns true if this many kernels are done. */
static int is_done(unsigned count) {
    return !count || ((int)(queue_head - count) >= 0 && ends[(count - 1) % (1 << 20)] <= now());
}
static res queue_up(unsigned micros, struct stream *stream) {
    /* Returns true if at most this many kernels are not done. */
    unsigned most = getenv("QUEUE") ? atoi(getenv("QUEUE")) : 64;
    while (queue_tail >= most && !is_done(queue_tail - most + 1)) usleep(50);
    pthread_mutex_lock(&mutex);
    unsigned at = queue_tail++ % QUEUED;
    queue[at].micros = micros;
    queue[at].submitted = now();
    queue[at].stream = stream;
    stream->until = stream->context->until = FOREVER;
    settle();
    pthread_mutex_unlock(&mutex);
    return 0;
}

EXPORT res cuInit(unsigned flags) {
    collectives();
    /* A forked child starts anew, whatever its parent's threads were doing. */
    static pid_t owner;
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    if (owner && owner != getpid()) mutex = fresh;
    owner = getpid();
    return 0;
}
EXPORT res cuDeviceGetCount(int *count) { *count = getenv("DEVICES") ? atoi(getenv("DEVICES")) : 1; return 0; }
EXPORT res cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
EXPORT res cuDeviceGetName(char *name, int len, int device) { snprintf(name, len, "Timed device %d", device); return 0; }
EXPORT res cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, device + 1, 16); return 0; }
EXPORT res cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 16UL << 30; return 0; }
static struct context *made(struct context *context, int device) {
    context->device = context->legacy.device = context->per_thread.device = device;
    context->legacy.context = context->per_thread.context = context;
    return context;
}
EXPORT res cuDevicePrimaryCtxRetain(void **ctx, int device) {
    *ctx = made(&contexts[device], device);
    return 0;
}
EXPORT res cuDevicePrimaryCtxRelease_v2(int device) { return 0; } /* never the last reference: see weaver.c */
EXPORT res cuCtxCreate_v2(struct context **ctx, unsigned flags, int device) {
    *ctx = current = made(calloc(1, sizeof **ctx), device);
    return 0;
}
EXPORT res cuCtxDestroy_v2(struct context *ctx) {
    if (ctx >= contexts && ctx < contexts + 8) return 201; /* a primary one */
    ctx->gone = 1;
    return 0;
}
EXPORT res cuCtxSetCurrent(void *ctx) { current = ctx; return 0; }
EXPORT res cuCtxGetCurrent(void **ctx) { *ctx = current; return 0; }
EXPORT res cuCtxGetDevice(int *out) { *out = device(); return current ? 0 : 201; }
static __thread struct context *below[16];
static __thread int depth;
EXPORT res cuCtxPushCurrent_v2(void *ctx) { below[depth++] = current; current = ctx; return 0; }
EXPORT res cuCtxPopCurrent_v2(void **ctx) { *ctx = current; current = below[--depth]; return 0; }
EXPORT res cuStreamCreate(void **out, unsigned flags) {
    struct stream *stream = calloc(1, sizeof *stream);
    stream->device = device();
    stream->context = current;
    *out = stream;
    return 0;
}
EXPORT res cuStreamGetCtx(void *stream, void **ctx) { *ctx = of(stream, 0)->context; return 0; }
EXPORT res cuStreamDestroy_v2(void *stream) { memset(stream, 0xff, sizeof(struct stream)); return 0; }
EXPORT res cuThreadExchangeStreamCaptureMode(int *exchange) { int old = mode; mode = *exchange; *exchange = old; return 0; }
EXPORT res cuStreamIsCapturing(void *handle, int *status) {
    struct stream *stream = of(handle, 0);
    if (!current) return 201;
    if (stream == &current->legacy && capturing_now) return 906;
    *status = stream->capturing;
    if (stream == &current->legacy && getenv("CAPTURE_NAPS")) usleep(1000);
    return 0;
}
static res ask(struct stream *stream) {
    if (!current) return 201;
    if (stream->context->gone) abort();
    if (stream == &stream->context->legacy && capturing_now) { all_broken = 1; return 906; }
    if (capturing_now && mode != 2) stream->broken = 1; /* a global capture forbids it to every thread whose mode is not relaxed */
    if (stream->capturing) { stream->broken = 1; return CAPTURE_UNSUPPORTED; }
    return stream->until > now() ? NOT_READY : 0;
}
EXPORT res cuStreamQuery(void *stream) { __atomic_add_fetch(&queries, 1, __ATOMIC_RELAXED); return ask(of(stream, 0)); }
EXPORT res cuStreamSynchronize(void *handle) {
    struct stream *stream = of(handle, 0);
    __atomic_add_fetch(&syncs, 1, __ATOMIC_RELAXED);
    res answer = ask(stream);
    while (stream->until == FOREVER) usleep(50);
    if (answer == NOT_READY) { wait_until(stream->until); return 0; }
    return answer;
}
EXPORT res cuCtxSynchronize(void) {
    __atomic_add_fetch(&syncs, 1, __ATOMIC_RELAXED);
    if (!current) return 201;
    wait_until(current->until);
    return 0;
}
EXPORT res cuEventCreate(void **event, unsigned flags) { *event = calloc(1, sizeof(struct event)); return 0; }
EXPORT res cuEventRecord(struct event *event, void *stream) {
    if (of(stream, 0)->context->gone) abort();
    if (of(stream, 0) == &current->legacy && capturing_now) { all_broken = 1; return 906; }
    event->behind = queue_tail;
    event->until = stream == (void *)1 ? current->until : of(stream, 0)->until;
    return 0;
}
EXPORT res cuStreamWaitEvent(void *handle, struct event *event, unsigned flags) {
    struct stream *stream = of(handle, 0);
    if (stream->until < event->until) stream->until = event->until;
    return 0;
}
EXPORT res cuEventQuery(struct event *event) { if (starts) return is_done(event->behind) ? 0 : NOT_READY; return event->until > now() ? NOT_READY : 0; }
EXPORT res cuEventSynchronize(struct event *event) { __atomic_add_fetch(&syncs, 1, __ATOMIC_RELAXED); wait_until(event->until); return 0; }
EXPORT res cuEventDestroy_v2(struct event *event) { free(event); return 0; }
EXPORT res cuStreamBeginCapture_v2(void *handle, int how) {
    struct stream *stream = of(handle, 0);
    if (getenv("CAPTURE_NAPS")) usleep(3000);
    stream->capturing = 1;
    stream->broken = stream->nodes = all_broken = 0;
    __atomic_add_fetch(&capturing_now, 1, __ATOMIC_SEQ_CST);
    return 0;
}
EXPORT res cuStreamEndCapture(void *handle, void **graph) {
    struct stream *stream = of(handle, 0);
    stream->capturing = 0;
    __atomic_sub_fetch(&capturing_now, 1, __ATOMIC_SEQ_CST);
    *graph = (void *)(intptr_t)stream->nodes;
    return stream->broken || all_broken ? 901 : 0;
}

static void timeline(int device, int64_t start, int64_t end) {
    const char *path = getenv("TIMELINE");
    if (path && log_file < 0) log_file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (log_file < 0) return;
    char line[96];
    int len = snprintf(line, sizeof line, "%d %d %lld %lld\n", getpid(), device, (long long)start, (long long)end);
    if (write(log_file, line, len) < 0) log_file = -1; /* the program closed the file */
}
static res run(unsigned micros, struct stream *stream) {
    if (!current && (uintptr_t)stream < 1 << 20) return 201; /* a stream with a handle needs no current context (H200, 580.159.04) */
    if (stream->capturing) { stream->nodes++; return 0; }
    if (starts) return queue_up(micros, stream);
    /* The launch queue is limited: a program runs at most $QUEUE_MS (50) ahead of the device, then waits. */
    int64_t ahead = (getenv("QUEUE_MS") ? atoi(getenv("QUEUE_MS")) : 50) * 1000000LL;
    if (device_until[stream->device] > now() + ahead) wait_until(device_until[stream->device] - ahead);
    int cancels;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels); /* a thread may be cancelled while it waits, but not while it holds the mutex */
    pthread_mutex_lock(&mutex);
    int64_t start = now();
    int64_t free_at = getenv("SIDE_BY_SIDE") ? stream->until : device_until[stream->device];
    if (start < free_at) start = free_at;
    int64_t end = start + micros * 1000LL;
    stream->until = end;
    if (stream->context->until < end) stream->context->until = end;
    if (device_until[stream->device] < end) device_until[stream->device] = end;
    timeline(stream->device, start, end);
    pthread_mutex_unlock(&mutex);
    pthread_setcancelstate(cancels, NULL);
    return 0;
}
EXPORT res cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **params, void **extra) {
    return run(gx, of(stream, 0));
}
EXPORT res cuLaunchKernel_ptsz(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, void *stream, void **params, void **extra) {
    return run(gx, of(stream, 1));
}
struct one { void *function; unsigned gx, gy, gz, bx, by, bz, shared; void *stream; void **params; };
EXPORT res cuLaunchCooperativeKernelMultiDevice(struct one *list, unsigned count, unsigned flags) {
    for (unsigned i = 0; i < count; i++) run(list[i].gx, of(list[i].stream, 0));
    return 0;
}
EXPORT res cuGraphLaunch(void *graph, void *stream) { return run(100 * (unsigned)(uintptr_t)graph, of(stream, 0)); }
EXPORT res cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    static uint64_t next = 1 << 20;
    *address = __atomic_add_fetch(&next, (bytes + 511) / 512 * 512, __ATOMIC_RELAXED);
    return 0;
}
EXPORT res cuMemFree_v2(uint64_t address) { return 0; }
EXPORT res cuDeviceGetMemPool(void **pool, int device) { *pool = (void *)0x1000; return 0; }
EXPORT res cuMemPoolGetAttribute(void *pool, int attribute, uint64_t *value) { *value = 0; return 0; }
EXPORT res cuMemPoolTrimTo(void *pool, size_t bytes) { return 0; }
EXPORT res cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream) { return cuMemAlloc_v2(address, bytes); }
EXPORT res cuMemFreeAsync(uint64_t address, void *stream) { return 0; }
/* How often a stream was waited for, and queried. */
EXPORT int timed_syncs(void) { return syncs; }
EXPORT int timed_queries(void) { return queries; }
