// What is copied into an array comes out of it: lines, planes, volumes, and a box within one.
#include "app.h"

enum { W = 37, H = 11, D = 5, FLOATS = 0x20, BYTES = 0x01 };

int main(void) {
    start();
    static unsigned in[D][H][W], out[D][H][W];
    size_t before = free_bytes();
    Any line, volume;
    for (unsigned i = 0; i < D * H * W; i++) (&in[0][0][0])[i] = i * 2654435761u;

    Shape flat = {W, 0, FLOATS, 1};
    DO(cuArrayCreate_v2(&line, &flat));
    DO(cuMemcpyHtoA_v2(line, 0, in, W * 4));
    DO(cuMemcpyAtoH_v2(out, line, 8, W * 4 - 8));
    TRUE(memcmp(out, (char *)in + 8, W * 4 - 8) == 0);
    EXPECT(cuMemcpyAtoH_v2(out, line, 8, W * 4), INVALID_VALUE);

    Shape3 cube = {W, H, D, FLOATS, 1, 0};
    DO(cuArray3DCreate_v2(&volume, &cube));
    Copy3 all = {.from_kind = HOST, .from_host = in, .from_pitch = W * 4, .from_height = H, .to_kind = ARRAY,
                 .to_array = volume, .width = W * 4, .height = H, .depth = D};
    DO(cuMemcpy3D_v2(&all));
    // A box of 2 x 3 x 2 from (1, 2, 3), to a packed place.
    unsigned box[2][3][2];
    Copy3 part = {.from_kind = ARRAY, .from_array = volume, .from_x = 4, .from_y = 2, .from_z = 3, .to_kind = HOST,
                  .to_host = box, .to_pitch = 8, .to_height = 3, .width = 8, .height = 3, .depth = 2};
    DO(cuMemcpy3D_v2(&part));
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 2; x++) TRUE(box[z][y][x] == in[3 + z][2 + y][1 + x]);
    part.from_z = 4;
    EXPECT(cuMemcpy3D_v2(&part), INVALID_VALUE); // Past the last slice.

    DO(cuArrayDestroy(volume));
    DO(cuArrayDestroy(line));
    TRUE(free_bytes() == before);

    Shape bad = {W, H, FLOATS, 3};
    EXPECT(cuArrayCreate_v2(&line, &bad), INVALID_VALUE);
    bad.channels = 1, bad.width = 0;
    EXPECT(cuArrayCreate_v2(&line, &bad), INVALID_VALUE);
    return 0;
}
