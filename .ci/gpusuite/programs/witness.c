// Spins on a real device and says when, by the device's own clock: witness SECONDS KERNEL_US HOW [DEVICES]
//   one:     kernels into one stream, waited for every 16
//   streams: kernels into three streams and the default one by turns, waited for every 24
//   graph:   a captured graph of 8 kernels, replayed, waited for every 2
//   every:   one kernel, then a wait, over and over
// Over so many devices (default 1) by turns. Prints "device start end" in nanoseconds for each kernel.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long Ptr;
typedef struct Handle *Any;
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(Any *, int);
int cuCtxSetCurrent(Any);
int cuCtxSynchronize(void);
int cuModuleLoadData(Any *, const void *);
int cuModuleGetFunction(Any *, Any, const char *);
int cuLaunchKernel(Any, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Any, void **, void **);
int cuMemAlloc_v2(Ptr *, size_t);
int cuMemsetD8_v2(Ptr, unsigned char, size_t);
int cuMemcpyDtoH_v2(void *, Ptr, size_t);
int cuStreamCreate(Any *, unsigned);
int cuStreamBeginCapture_v2(Any, int);
int cuStreamEndCapture(Any, Any *);
int cuGraphInstantiateWithFlags(Any *, Any, unsigned long long);
int cuGraphLaunch(Any, Any);

#define DO(call) do { int code = (call); if (code) { fprintf(stderr, #call ": %d\n", code); exit(1); } } while (0)

// Takes the next line of the table, and writes the kernel's start and end there.
static const char SPIN[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry spin(.param .u64 table, .param .u64 time) {\n"
    ".reg .u64 %t, %d, %a, %b, %s, %o; .reg .u32 %n, %m; .reg .pred %p;\n"
    "ld.param.u64 %t, [table]; ld.param.u64 %d, [time];\n"
    "mov.u64 %a, %globaltimer;\n"
    "again: mov.u64 %b, %globaltimer; sub.u64 %s, %b, %a; setp.lt.u64 %p, %s, %d; @%p bra again;\n"
    "mov.u32 %m, 1; atom.global.add.u32 %n, [%t], %m;\n"
    "add.u32 %n, %n, 1; mul.wide.u32 %o, %n, 16; add.u64 %t, %t, %o;\n"
    "mov.u64 %b, %globaltimer; st.global.u64 [%t], %a; st.global.u64 [%t + 8], %b; ret; }\n";

#define LINES 200000
#define DEVICES 8
static struct { Any context, function, stream[3], graph; Ptr table; } on[DEVICES];
static Ptr spin_ns;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void launch(int d, Any stream) {
    void *arguments[] = {&on[d].table, &spin_ns};
    DO(cuLaunchKernel(on[d].function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static void prepare(int d, int with_graph) {
    Any module, graph;
    DO(cuDevicePrimaryCtxRetain(&on[d].context, d));
    DO(cuCtxSetCurrent(on[d].context));
    DO(cuModuleLoadData(&module, SPIN));
    DO(cuModuleGetFunction(&on[d].function, module, "spin"));
    for (int i = 0; i < 3; i++) DO(cuStreamCreate(&on[d].stream[i], 1));
    DO(cuMemAlloc_v2(&on[d].table, (LINES + 1) * 16));
    DO(cuMemsetD8_v2(on[d].table, 0, (LINES + 1) * 16));
    if (!with_graph) return;
    DO(cuStreamBeginCapture_v2(on[d].stream[0], 0));
    for (int i = 0; i < 8; i++) launch(d, on[d].stream[0]);
    DO(cuStreamEndCapture(on[d].stream[0], &graph));
    DO(cuGraphInstantiateWithFlags(&on[d].graph, graph, 0));
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *how = argv[3];
    int devices = argc > 4 ? atoi(argv[4]) : 1, graph = !strcmp(how, "graph");
    int every = graph ? 2 : !strcmp(how, "streams") ? 24 : !strcmp(how, "every") ? 1 : 16;
    if (devices < 1 || devices > DEVICES) return 2;
    spin_ns = strtoull(argv[2], NULL, 10) * 1000;
    DO(cuInit(0));
    for (int d = 0; d < devices; d++) prepare(d, graph);
    double until = now() + atof(argv[1]);
    for (long i = 0, kernels = 0; now() < until && kernels < LINES; i++) {
        int d = i % devices;
        if (devices > 1) DO(cuCtxSetCurrent(on[d].context));
        if (graph) DO(cuGraphLaunch(on[d].graph, on[d].stream[0]));
        else launch(d, strcmp(how, "streams") ? on[d].stream[0] : i % 4 ? on[d].stream[i % 4 - 1] : NULL);
        kernels += graph ? 8 : 1;
        if (i / devices % every == every - 1) DO(cuCtxSynchronize());
    }
    static Ptr table[(LINES + 1) * 2];
    for (int d = 0; d < devices; d++) {
        DO(cuCtxSetCurrent(on[d].context));
        DO(cuCtxSynchronize());
        DO(cuMemcpyDtoH_v2(table, on[d].table, sizeof table));
        for (unsigned i = 1; i <= (unsigned)table[0] && i <= LINES; i++)
            printf("%d %llu %llu\n", d, table[2 * i], table[2 * i + 1]);
    }
    return 0;
}
