/* Closes all descriptors that it did not open: closes_everything before|after|both the first use of CUDA. */
#include "guest.h"
#include <fcntl.h>
#include <sys/syscall.h>
static void close_all(void) {
    if (syscall(436 /* close_range */, 3, ~0U, 0))
        for (int fd = 3; fd < 65536; fd++) close(fd);
}
int main(int argc, char **argv) {
    if (strcmp(argv[1], "after")) close_all();
    int answer = start() | launches(10);
    if (strcmp(argv[1], "before")) close_all();
    /* New descriptors get the numbers that the library's may have had: they must not be closed. */
    int mine[32];
    for (int i = 0; i < 32; i++) mine[i] = open("/dev/null", O_WRONLY);
    for (int i = 0; i < 4; i++) {
        answer |= launches(100);
        usleep(100000);
    }
    for (int i = 0; i < 32; i++) answer |= mine[i] >= 0 && close(mine[i]) != 0;
    printf("answers %d\n", answer);
    return 0;
}
