/* Calls each function of the arguments, with zeros or, after a "+", with a pointer to memory. Prints errno after
 * each call; it was 77 before. */
#include "who.h"
#include <errno.h>
#include <pthread.h>
typedef int (*function)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);
static char **names;
static int count;
static void *all(void *cuda) {
    static char place[8192];
    for (int i = 1; i < count; i++) {
        int writes = names[i][0] == '+';
        void *p = writes ? place : 0;
        errno = 77;
        function f = (function)dlsym(cuda, names[i] + writes);
        int found = errno;
        if (!f) { printf("%s is missing\n", names[i]); exit(1); }
        errno = 77;
        f(p, p, p, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        printf("%s %d %d\n", names[i], found, errno);
        errno = 77;
        f(p, p, p, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        printf("%s again %d\n", names[i], errno);
    }
    return 0;
}
int main(int argc, char **argv) {
    pthread_t thread;
    void *cuda = driver();
    names = argv;
    count = argc;
    errno = 77;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int answer = init(0);
    printf("cuInit %d %d\n", answer, errno);
    all(cuda);
    pthread_create(&thread, 0, all, cuda);
    pthread_join(thread, 0);
    return 0;
}
