/* Starts programs by every function, while another thread launches. */
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>
extern char **environ;
static volatile int done;
static void *busy(void *_) {
    set(ctx);
    while (!done) launches(10);
    return NULL;
}
int main(void) {
    int answer = start() | launches(10), status = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, busy, NULL);
    for (int i = 0; i < 20; i++) {
        pid_t child;
        char *words[] = {"true", NULL};
        answer |= posix_spawnp(&child, "true", NULL, NULL, words, environ);
        answer |= waitpid(child, &status, 0) != child || status;
        answer |= system("true");
        FILE *said = popen("echo said", "r");
        char line[16] = "";
        answer |= !fgets(line, sizeof line, said) || strcmp(line, "said\n") || pclose(said);
        child = fork();
        if (!child) _exit(launches(0));
        answer |= waitpid(child, &status, 0) != child || status;
    }
    done = 1;
    pthread_join(thread, NULL);
    printf("answers %d\n", answer);
    return 0;
}
