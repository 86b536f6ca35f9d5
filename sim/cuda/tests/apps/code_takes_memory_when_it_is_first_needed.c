// A module takes memory when it is loaded, and a kernel at its first launch; both give it back with the module or the context.
#include "app.h"

static const char *image = ".version 8.0\n.target sm_90\n.address_size 64\n"
                           ".visible .entry one() { ret; }\n.visible .entry two() { ret; }\n";

static Result launch(Any kernel) { return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }

int main(void) {
    start();
    Any module, one, two;
    Ptr all;
    const size_t code = 2 << 20;
    size_t before = free_bytes();
    DO(cuModuleLoadData(&module, image));
    TRUE(before - free_bytes() == code);
    DO(cuModuleGetFunction(&one, module, "one"));
    DO(cuModuleGetFunction(&two, module, "two"));
    TRUE(before - free_bytes() == code);
    for (int i = 0; i < 2; i++) {
        DO(launch(one));
        TRUE(before - free_bytes() == 2 * code);
    }

    DO(cuMemAlloc_v2(&all, free_bytes()));
    EXPECT(launch(two), OUT_OF_MEMORY);
    EXPECT(cuFuncLoad(two), OUT_OF_MEMORY);
    DO(launch(one));
    DO(cuMemFree_v2(all));
    DO(cuFuncLoad(two));
    TRUE(before - free_bytes() == 3 * code);

    DO(cuModuleUnload(module));
    TRUE(free_bytes() == before);
    return 0;
}
