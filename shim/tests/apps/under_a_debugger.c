/* Runs a managed program under ptrace, as a debugger does: every signal and every new thread stops it first. */
#include "guest.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
static void *work(void *_) {
    set(ctx);
    return launches(20) ? "failed" : NULL;
}
static int guest(void) {
    int answer = start() | launches(10);
    signal(SIGUSR1, SIG_IGN);
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        void *said;
        pthread_create(&thread, NULL, work, NULL);
        raise(SIGUSR1);
        pthread_join(thread, &said);
        answer |= said != NULL;
    }
    return answer;
}
int main(void) {
    pid_t child = fork();
    if (!child) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        exit(guest());
    }
    int status, traced = 0;
    waitpid(child, &status, 0);
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)) return puts("not allowed"), kill(child, SIGKILL), 0;
    ptrace(PTRACE_CONT, child, NULL, NULL);
    for (;;) {
        pid_t who = waitpid(-1, &status, __WALL);
        if (who < 0) break;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (who == child) return printf("answers %d threads %s\n", status, traced > 10 ? "seen" : "missed"), 0;
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (event == PTRACE_EVENT_CLONE) traced++;
        ptrace(PTRACE_CONT, who, NULL, (void *)(long)(event || signal == SIGSTOP || signal == SIGTRAP ? 0 : signal));
    }
    return 1;
}
