/* A program that polls like an engine that waits for requests. The argument is the number of threads. Each of them queries a
 * stream, the default stream, an event that is complete, an event that was never recorded, the free memory and the current
 * context every 10 ms. Commands: "polls" prints the number of polls and of failures, and the smallest and the largest free
 * memory; "work" submits work and waits for it; "unknown" queries an event that does not exist. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *driver, *nvml, *context, *stream, *event, *unused;
static unsigned long long memory;
static atomic_ulong polls, failures, least = ~0ul, most;

/* The answer while work is under way. */
#define NOT_READY 600
#define CALL(function, ...) ((int (*)())dlsym(driver, #function))(__VA_ARGS__)

static int work(void) {
    int code = CALL(cuMemsetD8Async, memory, 7, (size_t)(16 << 20), stream);
    if (!code) code = CALL(cuEventRecord, event, stream);
    if (!code) code = CALL(cuStreamSynchronize, stream);
    return code;
}

static void see(unsigned long free) {
    if (free < least) least = free;
    if (free > most) most = free;
}

static void *poll_always(void *argument) {
    int (*query_stream)() = (int (*)())dlsym(driver, "cuStreamQuery"), (*query_event)() = (int (*)())dlsym(driver, "cuEventQuery");
    int (*info)() = (int (*)())dlsym(driver, "cuMemGetInfo_v2"), (*get)() = (int (*)())dlsym(driver, "cuCtxGetCurrent");
    int (*set)() = (int (*)())dlsym(driver, "cuCtxSetCurrent"), (*attribute)() = (int (*)())dlsym(driver, "cuDeviceGetAttribute");
    int (*device_info)() = argument ? (int (*)())dlsym(nvml, "nvmlDeviceGetMemoryInfo") : NULL;
    struct { unsigned long long total, free, used; } device;
    set(context);
    for (;; usleep(10000)) {
        void *now = NULL;
        size_t free = 0, total = 0;
        int value = 0;
        if (query_stream(stream) % NOT_READY) failures++;
        if (query_stream((void *)0) % NOT_READY) failures++;
        if (query_event(event) % NOT_READY) failures++;
        if (query_event(unused)) failures++;
        if (set(context)) failures++;
        if (get(&now) || now != context) failures++;
        if (attribute(&value, 16, 0) || value <= 0) failures++;
        if (info(&free, &total) || free >= total) failures++;
        see(free);
        if (device_info && (device_info(argument, &device) || device.free + device.used > device.total)) failures++;
        polls++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    void *device = NULL;
    if (nvml && (((int (*)())dlsym(nvml, "nvmlInit_v2"))() || ((int (*)())dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &device)))
        return 5;
    if (CALL(cuInit, 0) || CALL(cuDevicePrimaryCtxRetain, &context, 0) || CALL(cuCtxSetCurrent, context)) return 3;
    if (CALL(cuMemAlloc_v2, &memory, (size_t)(16 << 20)) || CALL(cuStreamCreate, &stream, 1)) return 4;
    if (CALL(cuEventCreate, &event, 2) || CALL(cuEventCreate, &unused, 2) || work()) return 6;
    for (int i = 0, threads = argc > 1 ? atoi(argv[1]) : 1; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, poll_always, device);
    }
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        unsigned char byte = 0;
        if (!strncmp(line, "polls", 5)) printf("%lu %lu %lu %lu\n", polls, failures, least, most);
        if (!strncmp(line, "work", 4)) {
            int code = CALL(cuMemcpyDtoH_v2, &byte, memory + (16 << 20) - 1, (size_t)1);
            printf("%d %d\n", code ? code : work(), byte);
        }
        if (!strncmp(line, "unknown", 7)) printf("%d\n", CALL(cuEventQuery, (void *)1) != 0);
        fflush(stdout);
    }
    return 0;
}
