/* Managed processes in user, mount and pid namespaces, one after the other, under a managed parent. */
#include "guest.h"
#include <sched.h>
#include <sys/wait.h>
int main(void) {
    int answers = 0, status = 0;
    for (int i = 0; i < 2; i++) {
        pid_t outer = fork();
        if (!outer) {
            if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID)) _exit(77);
            pid_t inner = fork();
            if (!inner) exit(getpid() != 1 || (start() | launches(50)));
            waitpid(inner, &status, 0);
            _exit(status ? 1 : 0);
        }
        waitpid(outer, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return puts("not allowed"), 0;
        answers |= status;
    }
    printf("answers %d\n", answers | start() | launches(10));
    return 0;
}
