/* dlvsym and the pseudo handles. */
#include "who.h"
int main(void) {
    printf("default before %s\n", who(dlsym(RTLD_DEFAULT, "cuInit")));
    printf("next before %s\n", who(dlsym(RTLD_NEXT, "cuInit")));
    void *self = dlopen(NULL, RTLD_NOW);
    printf("self before %s\n", who(dlsym(self, "cuInit")));
    const char *error = dlerror();
    printf("error %s\n", error && strstr(error, "undefined symbol: cuInit") ? "libc's" : "none");
    void *local = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    printf("default after a local open %s\n", who(dlsym(RTLD_DEFAULT, "cuInit")));
    dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    printf("default %s\n", who(dlsym(RTLD_DEFAULT, "cuInit")));
    printf("next %s\n", who(dlsym(RTLD_NEXT, "cuInit")));
    printf("self %s\n", who(dlsym(self, "cuInit")));
    printf("dlvsym %s\n", who(dlvsym(local, "cuInit", "GLIBC_2.2.5")));
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    printf("dlvsym of libc %s\n", dlvsym(libc, "memcpy", "GLIBC_2.14") ? "found" : "null");
    printf("dlsym by dlsym %s\n", who(dlsym(RTLD_NEXT, "dlsym")));
    return 0;
}
