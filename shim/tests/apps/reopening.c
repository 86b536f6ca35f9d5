/* Closes the driver and opens it again: function pointers from before still work. */
#include "who.h"
int main(void) {
    void *cuda = driver();
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    printf("first %d\n", init(0));
    dlclose(cuda);
    printf("closed %d\n", init(0));
    cuda = driver();
    init = (int (*)(unsigned))dlsym(cuda, "cuInit");
    printf("again %s %d\n", who((void *)init), init(0));
    return 0;
}
