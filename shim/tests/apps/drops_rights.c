/* Starts as root and becomes an ordinary user: libc makes every thread change its ids, the library's too. */
#include "guest.h"
#include <grp.h>
int main(void) {
    int answer = start() | launches(10);
    if (setgroups(0, NULL) || setgid(65534) || setuid(65534)) return puts("not allowed"), 0;
    for (int i = 0; i < 4; i++) {
        answer |= launches(100) | (getuid() != 65534);
        usleep(100000);
    }
    printf("answers %d\n", answer);
    return 0;
}
