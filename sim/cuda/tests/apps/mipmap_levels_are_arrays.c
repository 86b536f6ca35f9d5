// Each level of a mipmapped array is an array of half the size, with memory of its own.
#include "app.h"

enum { FLOATS = 0x20, LAYERED = 1, CUBEMAP = 4 };

static void copy(Any array, unsigned *host, size_t width, size_t height, int in) {
    Copy2 copy = {.width = width * 4, .height = height};
    copy.from_kind = in ? HOST : ARRAY, copy.to_kind = in ? ARRAY : HOST;
    copy.from_host = host, copy.to_host = host;
    copy.from_array = copy.to_array = array;
    copy.from_pitch = copy.to_pitch = width * 4;
    DO(cuMemcpy2D_v2(&copy));
}

int main(void) {
    start();
    Any mipmapped, level;
    Shape3 shape = {16, 8, 0, FLOATS, 1, 0}, found;
    unsigned words[128];
    size_t before = free_bytes();
    DO(cuMipmappedArrayCreate(&mipmapped, &shape, 99)); // As many as there are: 16, 8, 4, 2, 1.
    EXPECT(cuMipmappedArrayGetLevel(&level, mipmapped, 5), INVALID_VALUE);
    for (unsigned i = 0; i < 5; i++) {
        DO(cuMipmappedArrayGetLevel(&level, mipmapped, i));
        DO(cuArray3DGetDescriptor_v2(&found, level));
        size_t height = 8 >> i ? 8 >> i : 1;
        TRUE(found.width == 16u >> i && found.height == height);
        for (int word = 0; word < 128; word++) words[word] = i + 1;
        copy(level, words, found.width, found.height, 1);
    }
    for (unsigned i = 0; i < 5; i++) {
        DO(cuMipmappedArrayGetLevel(&level, mipmapped, i));
        DO(cuArray3DGetDescriptor_v2(&found, level));
        copy(level, words, found.width, found.height, 0);
        for (size_t word = 0; word < found.width * found.height; word++) TRUE(words[word] == i + 1);
    }
    DO(cuArrayDestroy(level)); // Nothing happens: it goes with the whole.
    DO(cuArray3DGetDescriptor_v2(&found, level));
    TRUE(found.width == 1 && found.height == 1);
    DO(cuMipmappedArrayDestroy(mipmapped));
    TRUE(free_bytes() == before);

    Shape3 cube = {8, 8, 6, FLOATS, 1, CUBEMAP};
    DO(cuMipmappedArrayCreate(&mipmapped, &cube, 2));
    DO(cuMipmappedArrayGetLevel(&level, mipmapped, 1));
    DO(cuArray3DGetDescriptor_v2(&found, level));
    TRUE(found.width == 4 && found.depth == 6);
    cube.depth = 5;
    EXPECT(cuMipmappedArrayCreate(&mipmapped, &cube, 1), INVALID_VALUE);
    return 0;
}
