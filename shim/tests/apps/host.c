/* Opens the plugin named on the command line, with the flags named there. */
#include "who.h"
int main(int argc, char **argv) {
    int flags = RTLD_NOW | (argc > 2 && !strcmp(argv[2], "deepbind") ? RTLD_DEEPBIND : 0);
    void *plugin = dlopen(argv[1], flags);
    if (!plugin) { printf("%s\n", dlerror()); return 1; }
    const char *(*asks)(void) = (const char *(*)(void))dlsym(plugin, "plugin_asks");
    const char *(*calls)(void) = (const char *(*)(void))dlsym(plugin, "plugin_calls");
    printf("asks %s\n", asks());
    printf("calls %s\n", calls());
    printf("host asks %s\n", who(dlsym(RTLD_DEFAULT, "cuInit")));
    return 0;
}
