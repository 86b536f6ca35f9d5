/* Requests of devices, before and after `cuInit`, in a signal handler, in a child and with arguments of all forms; with the numbers
 * of the driver's too. Prints what each returns, `errno`, and what the request wrote. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int ends[2];

#define SHOW(name, request, wrote) do { \
        int done = request, number = errno; \
        printf("%s %d errno %d wrote %d\n", name, done, number, (int)(wrote)); \
    } while (0)

/* A request that succeeds leaves this alone. */
#define REQUEST(...) (errno = 77, ioctl(__VA_ARGS__))

static void all(const char *when) {
    int bytes = -1;
    struct { unsigned client, parent, object, class; unsigned char more[56]; } record;
    memset(&record, 0, sizeof record);
    puts(when);
    SHOW("bytes to read", REQUEST(ends[0], FIONREAD, &bytes), bytes);
    SHOW("no argument", REQUEST(ends[0], FIOCLEX), fcntl(ends[0], F_GETFD));
    SHOW("a number", REQUEST(ends[0], FIONBIO, &bytes), !!(fcntl(ends[0], F_GETFL) & O_NONBLOCK));
    SHOW("not a terminal", REQUEST(ends[0], TIOCGPGRP, &bytes), 0);
    SHOW("no descriptor", REQUEST(-1, FIONREAD, &bytes), 0);
    unsigned long numbers[] = {0xc0104629, 0xc020462a, 0xc020462b, 0xc030462b, 0xc04846d2, 0x4600};
    for (int i = 0; i < 6; i++) {
        char name[40];
        record.class = 0xa06c;
        record.object = 5;
        sprintf(name, "%lx", numbers[i]);
        SHOW(name, REQUEST(ends[0], numbers[i], &record), record.object);
        sprintf(name, "%lx of nothing", numbers[i]);
        SHOW(name, REQUEST(ends[0], numbers[i], NULL), 0);
    }
}

static void handler(int number) { all("in a handler"); }

int main(void) {
    if (pipe(ends) || write(ends[1], "five\n", 5) != 5) return 1;
    setvbuf(stdout, NULL, _IONBF, 0);
    all("before");
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = cuda ? (int (*)(unsigned))dlsym(cuda, "cuInit") : NULL;
    if (!init || init(0)) return 1;
    all("after");
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    if (!fork()) {
        all("in a child");
        _exit(0);
    }
    wait(NULL);
    return 0;
}
