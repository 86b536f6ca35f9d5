/* Linked with `-Wl,--wrap=cuMemAlloc_v2`: each allocation of a program becomes 2 MiB larger, so that small programs
 * make large ones. */
#include <stddef.h>

int __real_cuMemAlloc_v2(unsigned long long *address, size_t bytes);

int __wrap_cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    return __real_cuMemAlloc_v2(address, bytes ? bytes + (2 << 20) : 0);
}
