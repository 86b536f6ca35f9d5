/* Starts processes one after the other; each joins the world of the directory and ends. Prints how many of them
 * found their files without a name or under another world's name, and in how many worlds they were. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns the inode of the world's memory; 0 if a name of the world leads to another file, or is missing. */
static unsigned long world(void) {
    char line[512], *at;
    unsigned long inode, memory = 0;
    int files = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (!(at = strstr(line, "/dev/shm/gpushare-sim-"))) continue;
        struct stat named;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%*s %*s %*s %*s %lu", &inode) != 1 || stat(at, &named) || named.st_ino != inode) return 0;
        if (!strstr(at, ".lock")) memory = inode;
        files++;
    }
    fclose(maps);
    return files >= 2 ? memory : 0;
}

int main(int count, char **words) {
    int processes = count > 1 ? atoi(words[1]) : 1, lost = 0, worlds = 0;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) return printf("%s\n", dlerror()), 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    unsigned long *seen = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), before = 0;
    for (int i = 0; i < processes; i++) {
        pid_t child = fork();
        if (!child) {
            if (init(0)) _exit(1);
            *seen = world();
            exit(*seen == 0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        lost += status != 0;
        worlds += *seen != before;
        before = *seen;
    }
    printf("lost %d worlds %d\n", lost, worlds);
    return 0;
}
