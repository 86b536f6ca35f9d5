/* Sets a low resource limit before the first use of CUDA: low_limits NAME VALUE. `as` is added to the memory that
 * is mapped. */
#include "guest.h"
#include <sys/resource.h>

static unsigned long mapped(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%lu", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}
int main(int argc, char **argv) {
    const struct { const char *name; int which; } known[] = {
        {"nofile", RLIMIT_NOFILE}, {"nproc", RLIMIT_NPROC}, {"as", RLIMIT_AS},
        {"memlock", RLIMIT_MEMLOCK}, {"fsize", RLIMIT_FSIZE}, {"stack", RLIMIT_STACK},
    };
    dlopen("libcuda.so.1", RTLD_NOW); /* the driver is loaded first: the limit is not meant for it */
    if (argc > 3 && setuid(atoi(argv[3]))) return 3; /* few limits apply to root */
    for (int i = 0; i < 6; i++) {
        if (strcmp(known[i].name, argv[1])) continue;
        unsigned long value = strtoul(argv[2], NULL, 10) + (known[i].which == RLIMIT_AS ? mapped() : 0);
        struct rlimit limit = {value, value};
        if (setrlimit(known[i].which, &limit)) return 3;
    }
    int answer = start() | launches(10);
    usleep(150000);
    answer |= launches(100);
    printf("answers %d\n", answer);
    return 0;
}
