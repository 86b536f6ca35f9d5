/* The address of a linked function, by name and by lookup. */
#include "who.h"
int cuInit(unsigned);
int main(void) {
    void *volatile named = (void *)cuInit;
    int (*looked_up)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit");
    printf("default %s\n", (void *)looked_up == named ? "the same" : "another");
    printf("self %s\n", dlsym(dlopen(0, RTLD_NOW), "cuInit") == named ? "the same" : "another");
    printf("init %d\n", looked_up(0));
    return 0;
}
