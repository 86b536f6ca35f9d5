/* Runs a managed program in the background of a terminal that stops background writers: in_the_background. */
#include "guest.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

int main(void) {
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) || unlockpt(terminal)) return 3;
    pid_t leader = fork();
    if (!leader) {
        setsid();
        int tty = open(ptsname(terminal), O_RDWR);
        struct termios how;
        if (tty < 0 || tcgetattr(tty, &how)) _exit(3);
        how.c_lflag |= TOSTOP;
        tcsetattr(tty, TCSANOW, &how);
        pid_t guest = fork();
        if (!guest) {
            setpgid(0, 0);
            dup2(tty, 2);
            _exit(start() | launches(10));
        }
        setpgid(guest, guest);
        int status = 0;
        waitpid(guest, &status, WUNTRACED);
        if (WIFSTOPPED(status)) kill(guest, SIGKILL);
        _exit(WIFSTOPPED(status) ? 4 : WEXITSTATUS(status));
    }
    char line[600] = {0};
    int status = 0;
    waitpid(leader, &status, 0);
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    read(terminal, line, sizeof line - 1);
    printf("answers %d, %s\n", WEXITSTATUS(status), strncmp(line, "gpushare: ", 10) ? "nothing was said" : "one line");
    return 0;
}
