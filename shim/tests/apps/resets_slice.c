/* Sets the time slice of its context's channel group to the default, as libcuda does while it makes a context. */
#include "guest.h"

#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct control { uint32_t client, object, function, flags; uint64_t arguments; uint32_t size, status; };

static int of_driver(void) {
    char path[32], name[64];
    for (int fd = 3; fd < 1024; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, name, sizeof name - 1);
        if (n > 0 && (name[n] = 0, strstr(name, "nvidiactl"))) return fd;
    }
    return -1;
}

int main(void) {
    char line[8];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", start());
    while (fgets(line, sizeof line, stdin)) {
        uint64_t us = 2048;
        struct control call = {0xc1d00001, (uint32_t)(uintptr_t)ctx, 0xa06c0103, 0, (uint64_t)(uintptr_t)&us, sizeof us, 1};
        int done = ioctl(of_driver(), _IOWR('F', 0x2a, struct control), &call);
        printf("set %d %u\n", done, call.status);
    }
    return 0;
}
