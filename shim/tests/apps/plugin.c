/* A plugin that is linked with the driver and opened with RTLD_LOCAL: RTLD_DEFAULT in it finds its own libraries. */
#include "who.h"
int cuInit(unsigned);
const char *plugin_asks(void) { return who(dlsym(RTLD_DEFAULT, "cuInit")); }
const char *plugin_calls(void) { return who((void *)cuInit); }
