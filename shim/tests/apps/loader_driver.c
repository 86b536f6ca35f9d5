/* A libcuda that only loads another one, as in container toolkits and WSL. */
#include <dlfcn.h>
#include <stdint.h>
#include <stddef.h>
static int (*inner_init)(unsigned);
static int (*inner_alloc)(uint64_t *, size_t);
static int calls;
static void load(void) {
    if (inner_init) return;
    void *inner = dlopen("libcuda_inner.so.1", RTLD_NOW | RTLD_LOCAL);
    inner_init = (int (*)(unsigned))dlsym(inner, "cuInit");
    inner_alloc = (int (*)(uint64_t *, size_t))dlsym(inner, "cuMemAlloc_v2");
}
int cuInit(unsigned flags) { load(); calls++; return inner_init(flags); }
int cuMemAlloc_v2(uint64_t *address, size_t bytes) { load(); calls++; return inner_alloc(address, bytes); }
int loader_calls(void) { return calls; }
