/* Closes the driver's descriptors and opens files of its own in their place. Says so, and waits for a line before each step. */
#include "guest.h"

int main(void) {
    char line[8];
    int ends[2];
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", start());
    if (!fgets(line, sizeof line, stdin)) return 1;
    for (int fd = 3; fd < 1024; fd++) close(fd);
    for (int i = 0; i < 8; i++)
        if (pipe(ends)) return 1;
    puts("reused");
    return !fgets(line, sizeof line, stdin);
}
