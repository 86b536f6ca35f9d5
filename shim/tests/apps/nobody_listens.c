/* A stderr that cannot be written: nobody_listens HOW. An invalid value makes the library print a message.
 * closed: a pipe without a reader; pending: the same while a SIGPIPE is pending; full: a full pipe; large: a file
 * at its size limit. */
#include "guest.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

static int waits_for(int number) {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, number);
}
int main(int argc, char **argv) {
    const char *how = argv[1];
    int ends[2];
    if (pipe(ends)) return 3;
    if (!strcmp(how, "large")) {
        char name[] = "/tmp/nobody-listens-XXXXXX";
        int file = mkstemp(name);
        unlink(name);
        struct rlimit limit = {4096, 4096};
        if (file < 0 || ftruncate(file, 4096) || lseek(file, 0, SEEK_END) != 4096) return 3;
        dup2(file, 2);
        if (setrlimit(RLIMIT_FSIZE, &limit)) return 3;
    } else {
        dup2(ends[1], 2);
    }
    if (!strcmp(how, "full")) {
        fcntl(2, F_SETFL, O_NONBLOCK);
        char bytes[4096] = {0};
        while (write(2, bytes, sizeof bytes) > 0) {}
        fcntl(2, F_SETFL, 0);
    } else if (strcmp(how, "large")) {
        close(ends[0]);
    }
    if (!strcmp(how, "pending")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGPIPE);
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGPIPE);
    }
    int answer = start() | launches(10);
    printf("answers %d, SIGPIPE %s\n", answer, waits_for(SIGPIPE) ? "waits" : "is not there");
    return 0;
}
