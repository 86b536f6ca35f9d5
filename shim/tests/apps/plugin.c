/* A plugin that was linked with the driver and is opened RTLD_LOCAL: RTLD_DEFAULT from here sees its own libraries. */
#include "who.h"
int cuInit(unsigned);
const char *plugin_asks(void) { return who(dlsym(RTLD_DEFAULT, "cuInit")); }
const char *plugin_calls(void) { return who((void *)cuInit); }
