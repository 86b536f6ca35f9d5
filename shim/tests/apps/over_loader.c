/* Uses a driver that loads another one: each call arrives once. */
#include "who.h"
int main(void) {
    void *cuda = driver();
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
    int (*calls)(void) = (int (*)(void))dlsym(cuda, "loader_calls");
    uint64_t address = 0;
    int answer = init(0);
    printf("init %s %d\n", who((void *)init), answer);
    answer = alloc(&address, 64);
    printf("alloc %s %d %s\n", who((void *)alloc), answer, address ? "given" : "none");
    printf("calls %d\n", calls());
    return 0;
}
