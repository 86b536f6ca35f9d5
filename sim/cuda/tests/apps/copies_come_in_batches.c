// A batch copies all that it lists; a wrong entry is named and nothing is copied.
#include "app.h"

typedef struct { int order; Location from, to; unsigned flags; } How;
typedef struct { int type; union { struct { Ptr address; size_t row, height; Location hint; } at; struct { Any array; size_t x, y, z; } in; }; } End;
typedef struct { End from, to; size_t width, height, depth; int order; unsigned flags; } Block;
Result cuMemcpyBatchAsync(Ptr *, Ptr *, size_t *, size_t, How *, size_t *, size_t, size_t *, Any);
Result cuMemcpy3DBatchAsync(size_t, Block *, size_t *, unsigned long long, Any);

int main(void) {
    start();
    Any stream, array;
    Ptr from, to;
    unsigned words[64], back[64];
    size_t wrong = 99, first = 0;
    How how = {.order = 1, .from = {1, 0}, .to = {1, 0}};
    for (unsigned i = 0; i < 64; i++) words[i] = i * 3 + 1;
    DO(cuStreamCreate(&stream, NON_BLOCKING));
    DO(cuMemAlloc_v2(&from, 256));
    DO(cuMemAlloc_v2(&to, 256));
    DO(cuMemcpyHtoD_v2(from, words, 256));
    DO(cuMemsetD32_v2(to, 0, 64));

    Ptr froms[] = {from, from + 128}, tos[] = {to + 128, to};
    size_t sizes[] = {128, 64};
    DO(cuMemcpyBatchAsync(tos, froms, sizes, 2, &how, &first, 1, &wrong, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(back, to, 256));
    TRUE(!memcmp(back + 32, words, 128) && !memcmp(back, words + 32, 64) && back[16] == 0);
    EXPECT(cuMemcpyBatchAsync(tos, froms, sizes, 2, &how, &first, 1, &wrong, NULL), INVALID_VALUE);

    // A block of 2 x 2 x 2 words out of 4 x 4 x 4 into an array's middle, and out of it again: in elements.
    Shape3 shape = {8, 8, 8, 0x20, 1, 0};
    DO(cuArray3DCreate_v2(&array, &shape));
    Block blocks[] = {
        {.from = {.type = 1, .at = {from, 4, 4, {1, 0}}}, .to = {.type = 2, .in = {array, 3, 2, 1}}, .width = 2, .height = 2, .depth = 2, .order = 1},
    };
    DO(cuMemsetD32_v2(to, 0, 64));
    DO(cuMemcpy3DBatchAsync(1, blocks, &wrong, 0, stream));
    Block out = {.from = blocks[0].to, .to = {.type = 1, .at = {to, 2, 2, {1, 0}}}, .width = 2, .height = 2, .depth = 2, .order = 1};
    DO(cuMemcpy3DBatchAsync(1, &out, &wrong, 0, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemcpyDtoH_v2(back, to, 256));
    unsigned expected[] = {words[0], words[1], words[4], words[5], words[16], words[17], words[20], words[21], 0};
    TRUE(!memcmp(back, expected, sizeof expected));
    blocks[0].depth = 0;
    EXPECT(cuMemcpy3DBatchAsync(1, blocks, &wrong, 0, stream), INVALID_VALUE);
    return 0;
}
