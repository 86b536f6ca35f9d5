/* Opens the driver by its full path, twice, and with RTLD_DEEPBIND: by_path /…/libcuda.so.1 */
#include "who.h"
int main(int argc, char **argv) {
    void *once = dlopen(argv[1], RTLD_NOW), *again = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
    if (!once || !again) return printf("%s\n", dlerror()), 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(once, "cuInit");
    printf("once %s again %s calls %d\n", who(init), who(dlsym(again, "cuInit")), init(0));
    return 0;
}
