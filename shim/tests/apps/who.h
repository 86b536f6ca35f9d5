/* Returns the owner of the function at an address: "ours" (the preload library), "driver" (a libcuda), "null", or
 * the object's path. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *who(void *address) {
    static Dl_info info;
    if (!address) return "null";
    if (!dladdr(address, &info) || !info.dli_fname) return "nobody";
    if (strstr(info.dli_fname, "libgpushare")) return "ours";
    if (strstr(info.dli_fname, "libcuda")) return "driver";
    return info.dli_fname;
}

/* Opens the driver as clients do. */
static void *driver(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle) { printf("%s\n", dlerror()); exit(1); }
    return handle;
}
