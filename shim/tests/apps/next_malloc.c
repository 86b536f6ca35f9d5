/* A typical preload library: it hooks malloc and finds the next one by RTLD_NEXT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static void *(*next)(size_t);
static void *(*next_versioned)(size_t);
static char early[65536];
static size_t used;
void *malloc(size_t bytes) {
    static int finding;
    if (!next && !finding) {
        finding = 1;
        next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
        next_versioned = (void *(*)(size_t))dlvsym(RTLD_NEXT, "malloc", "GLIBC_2.2.5");
        finding = 0;
    }
    if (next && next != malloc && next_versioned == next) return next(bytes);
    used += (bytes + 15) / 16 * 16;
    return used > sizeof early ? NULL : early + used - (bytes + 15) / 16 * 16;
}
