/* Random copies and fills against a model that knows nothing of spans, rows or tiles: one pixel at a time. */
#include "streamer_memory.h"

#include "streamer_tiling.h"
#include "xe_uapi.h"

static struct streamer streamer;
static struct test_memory *memory;
enum { FIRST_PAGE = 1, WINDOW = 320 * PAGE };
#define START VA(FIRST_PAGE, 0)
static unsigned char model[WINDOW], actual[WINDOW];
static unsigned long long seed = 88172645463325252u;

static uint32_t below(uint32_t bound)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 20) % bound;
}

static void refill(void)
{
    for (size_t i = 0; i < WINDOW; i += 8) {
        uint64_t value = (uint64_t)below(UINT32_MAX) << 32 | below(UINT32_MAX);
        memcpy(model + i, &value, 8);
    }
    test_poke(memory, START, model, WINDOW);
}

static void compare(const char *what)
{
    test_peek(memory, START, actual, WINDOW);
    if (!memcmp(model, actual, WINDOW))
        return;
    size_t at = 0;
    while (model[at] == actual[at])
        at++;
    fprintf(stderr, "%s: byte 0x%zx is 0x%02x, 0x%02x expected\n", what, at, actual[at], model[at]);
    abort();
}

static void test_mem_copy(void)
{
    for (int round = 0; round < 200; round++) {
        bool matrix = below(2), pages = below(4) == 0;
        uint32_t width = pages ? (below(8) + 1) : below(6000) + 1, height = below(40) + 1;
        uint64_t bytes = pages ? width * 256ull : width;
        uint32_t from_pitch = (uint32_t)bytes + below(300), to_pitch = below(2) ? from_pitch : (uint32_t)bytes;
        uint64_t half = WINDOW / 2, from = below(4096), to = half + below(4096);
        if (!matrix)
            from_pitch = below(9000) + 1;
        CHECK_EQUAL(RUN(&streamer, BLT(0x5a, 8) | (uint32_t)matrix << 17 | (uint32_t)pages << 19, width - 1, height - 1,
                        from_pitch - 1, to_pitch - 1, ADDRESS(START + from), ADDRESS(START + to), 0x12345678,
                        BATCH_END),
                    STREAMER_DONE);
        for (uint32_t row = 0; row < (matrix ? height : 1); row++)
            for (uint64_t i = 0; i < bytes; i++)
                model[to + row * to_pitch + i] = model[from + row * from_pitch + i];
        compare("MEM_COPY");
    }
    CHECK_EQUAL(RUN(&streamer, BLT(0x5a, 8) | 2u << 17, 0, 0, 0, 0, ADDRESS(START), ADDRESS(START), 0, BATCH_END),
                STREAMER_REFUSED);
    /* Out of a null mapping come zeros. */
    CHECK_EQUAL(
        RUN(&streamer, BLT(0x5a, 8), 4999, 0, 0, 0, ADDRESS(VA(NULL_PAGE, 0)), ADDRESS(START + 77), 0, BATCH_END),
        STREAMER_DONE);
    memset(model + 77, 0, 5000);
    compare("MEM_COPY from a null mapping");
}

static void test_mem_set(void)
{
    for (int round = 0; round < 200; round++) {
        bool matrix = below(2);
        uint32_t width = below(6000) + 1, height = below(60) + 1, pitch = width + below(200), value = below(256);
        uint64_t to = below(4096);
        CHECK_EQUAL(RUN(&streamer, BLT(0x5b, 5) | (uint32_t)matrix << 17, width - 1, height - 1, pitch - 1,
                        ADDRESS(START + to), value << 24 | 8, BATCH_END),
                    STREAMER_DONE);
        for (uint32_t row = 0; row < (matrix ? height : 1); row++)
            memset(model + to + row * pitch, (int)value, width);
        compare("MEM_SET");
    }
    for (uint32_t header = 1; header < 16; header++)
        CHECK_EQUAL(RUN(&streamer, BLT(0x5b, 5) | header << 17, 0, 0, 0, ADDRESS(START), 0, BATCH_END),
                    header < 2 ? STREAMER_DONE : STREAMER_REFUSED);
    model[0] = 0;
    compare("MEM_SET of one byte");
}

struct rectangle {
    enum tiling tiling;
    uint32_t pitch, x, y;
    uint64_t base;
};

static uint64_t place(const struct rectangle *rectangle, uint32_t x, uint32_t y, unsigned pixel)
{
    uint64_t run;
    return rectangle->base + tiling_offset(rectangle->tiling, (uint64_t)(rectangle->x + x) * pixel, rectangle->y + y,
                                           rectangle->pitch, pixel, &run);
}

static struct rectangle random_rectangle(unsigned pixel, uint64_t base)
{
    enum tiling tiling = pixel == 12 ? TILING_LINEAR : below(4);
    uint32_t pitch = tiling == TILING_LINEAR ? below(50) * 4 + 2000 : 2048;
    return (struct rectangle){.tiling = tiling, .pitch = pitch, .x = below(8), .y = below(8), .base = base};
}

static uint32_t pitch_field(const struct rectangle *rectangle)
{
    return rectangle->tiling == TILING_LINEAR ? rectangle->pitch : rectangle->pitch / 4;
}

static void expect_copy(const struct rectangle *to, const struct rectangle *from, unsigned pixel, uint32_t width,
                        uint32_t height)
{
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            memcpy(model + place(to, x, y, pixel), model + place(from, x, y, pixel), pixel);
}

static void test_surfaces(void)
{
    static const uint8_t pixels[] = {1, 2, 4, 8, 12, 16}, fast_depth[] = {0, 1, 3, 4, 2, 5};
    for (int round = 0; round < 120; round++) {
        unsigned depth = below(6), pixel = pixels[depth];
        struct rectangle to = random_rectangle(pixel, WINDOW / 2), from = random_rectangle(pixel, 0);
        uint32_t width = below(1600 / pixel) + 1, height = below(100) + 1;
        if (pixel != 12) {
            CHECK_EQUAL(RUN(&streamer, BLT(0x42, 8) | (uint32_t)to.tiling << 13 | (uint32_t)from.tiling << 20,
                            pitch_field(&to) | (uint32_t)fast_depth[depth] << 24 | 3u << 30, to.x | to.y << 16,
                            (to.x + width) | (to.y + height) << 16, ADDRESS(START + to.base), from.x | from.y << 16,
                            pitch_field(&from), ADDRESS(START + from.base), BATCH_END),
                        STREAMER_DONE);
            expect_copy(&to, &from, pixel, width, height);
            compare("XY_FAST_COPY_BLT");
        }
        to = random_rectangle(pixel, WINDOW / 2);
        from = random_rectangle(pixel, 0);
        uint32_t left = below(4), top = below(4);
        CHECK_EQUAL(RUN(&streamer, BLT(0x41, 20) | depth << 19, (pitch_field(&to) - 1) | (uint32_t)to.tiling << 30,
                        to.x | to.y << 16, (to.x + width) | (to.y + height) << 16, ADDRESS(START + to.base),
                        left | top << 16 | 1u << 31, from.x | from.y << 16,
                        (pitch_field(&from) - 1) | (uint32_t)from.tiling << 30, ADDRESS(START + from.base), 0, 0, 0, 0,
                        0, 1u << 29, 0, 0, 1u << 29, 0, 0, BATCH_END),
                    STREAMER_DONE);
        to.x += left;
        to.y += top;
        expect_copy(&to, &from, pixel, width, height);
        compare("XY_BLOCK_COPY_BLT");

        to = random_rectangle(pixel, below(3) * 65536);
        const uint32_t colour[4] = {below(UINT32_MAX), below(UINT32_MAX), below(UINT32_MAX), below(UINT32_MAX)};
        CHECK_EQUAL(RUN(&streamer, BLT(0x44, 14) | depth << 19, (pitch_field(&to) - 1) | (uint32_t)to.tiling << 30,
                        to.x | to.y << 16, (to.x + width) | (to.y + height) << 16, ADDRESS(START + to.base), 0,
                        colour[0], colour[1], colour[2], colour[3], 0, 0, 1u << 29, 0, 0, BATCH_END),
                    STREAMER_DONE);
        for (uint32_t y = 0; y < height; y++)
            for (uint32_t x = 0; x < width; x++)
                memcpy(model + place(&to, x, y, pixel), colour, pixel);
        compare("XY_FAST_COLOR_BLT");
    }
    /* Reserved depths, 96 bits in tiles, samples, mip levels and array slices. */
    CHECK_EQUAL(RUN(&streamer, BLT(0x42, 8), 2u << 24, 0, 0x10001, ADDRESS(START), 0, 4, ADDRESS(START)),
                STREAMER_REFUSED);
    for (uint32_t bits = 0; bits < 4; bits++) {
        static const uint32_t header[] = {6u << 19, 4u << 19, 1u << 9, 0}, lod[] = {0, 0, 0, 1};
        CHECK_EQUAL(RUN(&streamer, BLT(0x41, 20) | header[bits], 7u | 2u << 30, 0, 0x10001, ADDRESS(START), 0, 0, 7,
                        ADDRESS(START), 0, 0, 0, 0, 0, 0, lod[bits], 0, 0, 0, 0),
                    STREAMER_REFUSED);
    }
    compare("refused commands");
}

/* A tiling is a permutation of a tile's bytes, and a run stays together. */
static void test_tilings(void)
{
    static const uint8_t pixels[] = {1, 2, 4, 8, 16};
    static unsigned char hit[1 << 18];
    for (unsigned tiling = TILING_X; tiling <= TILING_64; tiling++)
        for (unsigned p = 0; p < 5; p++) {
            memset(hit, 0, sizeof(hit));
            for (uint64_t y = 0; y < 256; y++)
                for (uint64_t x = 0; x < 1024; x++) {
                    uint64_t run, next_run, at = tiling_offset(tiling, x, y, 1024, pixels[p], &run);
                    CHECK(at < sizeof(hit) && !hit[at]);
                    hit[at] = 1;
                    if (run > 1)
                        CHECK_EQUAL(tiling_offset(tiling, x + 1, y, 1024, pixels[p], &next_run), at + 1);
                }
        }
}

/* A fault in the middle leaves what came before it. */
static void test_faults(void)
{
    test_poke(memory, VA(READ_ONLY_PAGE - 1, 0), model, PAGE);
    CHECK_EQUAL(RUN(&streamer, BLT(0x5a, 8), 99999, 0, 0, 0, ADDRESS(START), ADDRESS(VA(READ_ONLY_PAGE - 2, 8)), 0),
                STREAMER_FAULT);
    CHECK_EQUAL(streamer.fault.address, VA(READ_ONLY_PAGE, 0));
    CHECK_EQUAL(streamer.fault.type, GPU_FAULT_WRITE);
    test_peek(memory, VA(READ_ONLY_PAGE - 2, 8), actual, 2 * PAGE - 8);
    CHECK(!memcmp(actual, model, 2 * PAGE - 8));
    CHECK_EQUAL(RUN(&streamer, BLT(0x5b, 5), 99999, 0, 0, ADDRESS(VA(HOLE_PAGE - 1, 0)), 0), STREAMER_FAULT);
    CHECK_EQUAL(streamer.fault.address, VA(HOLE_PAGE, 0));
}

int main(void)
{
    streamer_init(&streamer, DRM_XE_ENGINE_CLASS_COPY, 0);
    memory = test_memory_new(&streamer);
    refill();
    test_mem_copy();
    test_mem_set();
    test_tilings();
    test_surfaces();
    test_faults();
    test_memory_free(memory);
    return 0;
}
