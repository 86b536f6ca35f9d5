/* A sandbox forbids system calls: forbidden_calls before|after ERRNO NUMBER… (before or after the first use of CUDA) */
#include "guest.h"
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <time.h>

static int forbid(int error, int count, char **numbers) {
    struct sock_filter filter[32];
    int n = 0;
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count; i++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(numbers[i]), 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {n, filter};
    /* for every thread */
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) | syscall(317 /* seccomp */, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
/* Returns the share of processor time that the busiest other thread used of what it could have used, over a while.
 * Time in which it waited for a processor does not count. */
static double busiest(void) {
    static struct { int id; double ran, waited; } seen[64];
    double most = 0, began = 0;
    int count = 0;
    for (int round = 0; round < 2; round++) {
        DIR *tasks = opendir("/proc/self/task");
        struct dirent *entry;
        while (tasks && (entry = readdir(tasks))) {
            char path[64];
            unsigned long long ran = 0, waited = 0;
            int id = atoi(entry->d_name), at = 0;
            if (!id || id == getpid()) continue;
            snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", id);
            FILE *file = fopen(path, "r");
            if (!file || fscanf(file, "%llu %llu", &ran, &waited) != 2) ran = waited = 0;
            if (file) fclose(file);
            while (at < count && seen[at].id != id) at++;
            if (!round && count < 64) seen[count].id = id, seen[count].ran = ran, seen[count++].waited = waited;
            if (!round || at == count) continue;
            double might = seconds() - began - (waited - seen[at].waited) / 1e9;
            double part = might > 0.01 ? (ran - seen[at].ran) / 1e9 / might : 0;
            if (part > most) most = part;
        }
        if (tasks) closedir(tasks);
        if (!round) began = seconds(), usleep(500000);
    }
    return most;
}

int main(int argc, char **argv) {
    int before = !strcmp(argv[1], "before"), answer = 0;
    if (before && forbid(atoi(argv[2]), argc - 3, argv + 3)) return 3;
    answer = start() | launches(10);
    if (!before && forbid(atoi(argv[2]), argc - 3, argv + 3)) return 3;
    for (int i = 0; i < 10; i++) {
        answer |= launches(10);
        usleep(20000);
    }
    printf("answers %d, %s\n", answer, busiest() < 0.5 ? "at rest" : "busy");
    return 0;
}
