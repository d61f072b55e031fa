/* The copy engine's byte movers. */
#include "commands.h"

enum {
    SHAPE_SHIFT = 17, /* 2 bits: 0 linear, 1 matrix; the fast clears of MEM_SET above */
    COPY_PAGES = 1 << 19,
    SET_MODE_SHIFT = 19,
    PAGE = 256,
    WIDTH_BITS = 0xffffff,
    HEIGHT_BITS = 0x3ffff,
};

/* Sizes are stored less one. A linear command knows only its width. */
void command_mem_copy(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    uint64_t width = (dword[1] & WIDTH_BITS) + 1, from = command_address(dword + 5), to = command_address(dword + 7);
    uint64_t from_pitch = (dword[3] & HEIGHT_BITS) + 1, to_pitch = (dword[4] & HEIGHT_BITS) + 1;
    uint32_t height = (dword[2] & HEIGHT_BITS) + 1;

    if (dword[0] & COPY_PAGES)
        width *= PAGE;
    switch (dword[0] >> SHAPE_SHIFT & 3) {
    case 0:
        streamer_copy(streamer, to, from, width);
        break;
    case 1:
        if (from_pitch == width && to_pitch == width)
            streamer_copy(streamer, to, from, width * height);
        else
            for (uint32_t row = 0; row < height; row++)
                if (!streamer_copy(streamer, to + row * to_pitch, from + row * from_pitch, width))
                    return;
        break;
    default:
        streamer_refuse(streamer, "MEM_COPY (0x%08x) with a reserved copy type", dword[0]);
    }
}

void command_mem_set(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    uint64_t width = (dword[1] & WIDTH_BITS) + 1, pitch = (dword[3] & HEIGHT_BITS) + 1;
    uint64_t to = command_address(dword + 4);
    uint32_t height = (dword[2] & HEIGHT_BITS) + 1;
    const unsigned char value = (unsigned char)(dword[6] >> 24);
    unsigned shape = dword[0] >> SHAPE_SHIFT & 3;

    if (dword[0] >> SET_MODE_SHIFT & 3 || shape > 1) {
        streamer_refuse(streamer, "MEM_SET (0x%08x): eviction and fast clears are not implemented", dword[0]);
        return;
    }
    if (shape == 0)
        height = 1;
    for (uint32_t row = 0; row < height; row++)
        if (!streamer_fill(streamer, to + row * pitch, &value, 1, width))
            return;
}
