/* The copy engine's 2D commands. Pitches are bytes for linear surfaces and dwords for tiled ones. Compression is
   ignored: what is stored here is never compressed. */
#include "commands.h"
#include "streamer_tiling.h"

struct surface {
    uint64_t address, pitch;
    enum tiling tiling;
    int32_t x, y; /* of the rectangle's top left, in pixels */
};

/* Bytes a pixel, 0 for a reserved depth. */
static unsigned block_pixel(uint32_t header)
{
    static const uint8_t size[8] = {1, 2, 4, 8, 12, 16};
    return size[header >> 19 & 7];
}

static unsigned fast_pixel(uint32_t dword)
{
    static const uint8_t size[8] = {1, 2, 0, 4, 8, 16};
    return size[dword >> 24 & 7];
}

static uint64_t surface_pitch(uint32_t field, enum tiling tiling)
{
    return (uint64_t)field * (tiling == TILING_LINEAR ? 1 : 4);
}

static bool check(struct streamer *streamer, const char *name, const struct surface *surface, unsigned pixel)
{
    if (!pixel)
        return streamer_refuse(streamer, "%s with a reserved colour depth", name);
    if (pixel == 12 && surface->tiling != TILING_LINEAR)
        return streamer_refuse(streamer, "%s: 96 bits a pixel exist only in linear surfaces", name);
    if (surface->x < 0 || surface->y < 0)
        return streamer_refuse(streamer, "%s with a negative coordinate", name);
    return true;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* `width` bytes and `height` rows. */
static void copy_rows(struct streamer *streamer, const struct surface *to, const struct surface *from, unsigned pixel,
                      uint64_t width, uint32_t height)
{
    for (uint32_t row = 0; row < height; row++)
        for (uint64_t done = 0; done < width;) {
            uint64_t to_run, from_run;
            uint64_t to_offset = tiling_offset(to->tiling, (uint64_t)to->x * pixel + done, (uint64_t)to->y + row,
                                               to->pitch, pixel, &to_run);
            uint64_t from_offset = tiling_offset(from->tiling, (uint64_t)from->x * pixel + done,
                                                 (uint64_t)from->y + row, from->pitch, pixel, &from_run);
            uint64_t part = least(width - done, least(to_run, from_run));
            if (!streamer_copy(streamer, to->address + to_offset, from->address + from_offset, part))
                return;
            done += part;
        }
}

void command_fast_copy(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    unsigned pixel = fast_pixel(dword[1]);
    struct surface to = {
        .address = command_address(dword + 4),
        .tiling = dword[0] >> 13 & 3,
        .x = (int16_t)(dword[2] & 0xffff),
        .y = (int16_t)(dword[2] >> 16),
    };
    struct surface from = {
        .address = command_address(dword + 8),
        .tiling = dword[0] >> 20 & 3,
        .x = (int16_t)(dword[6] & 0xffff),
        .y = (int16_t)(dword[6] >> 16),
    };
    int32_t right = (int16_t)(dword[3] & 0xffff), bottom = (int16_t)(dword[3] >> 16);

    to.pitch = surface_pitch(dword[1] & 0xffff, to.tiling);
    from.pitch = surface_pitch(dword[7] & 0xffff, from.tiling);
    if (!check(streamer, "XY_FAST_COPY_BLT", &to, pixel) || !check(streamer, "XY_FAST_COPY_BLT", &from, pixel))
        return;
    if (right > to.x && bottom > to.y)
        copy_rows(streamer, &to, &from, pixel, (uint64_t)(right - to.x) * pixel, (uint32_t)(bottom - to.y));
}

/* The extended form adds the shape of mip maps, arrays and volumes: only the plain first slice is implemented. */
static bool check_extension(struct streamer *streamer, const char *name, const uint32_t *extension)
{
    unsigned lod = extension[1] & 0xf, index = extension[2] >> 21;
    if (lod || index)
        return streamer_refuse(streamer, "%s: mip level %u and array slice %u are not implemented", name, lod, index);
    return true;
}

/* Pixel offset of the surface's origin, in the dword after its address. */
static void add_origin(struct surface *surface, uint32_t dword)
{
    surface->x += (int32_t)(dword & 0x3fff);
    surface->y += (int32_t)(dword >> 16 & 0x3fff);
}

void command_block_copy(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    static const char name[] = "XY_BLOCK_COPY_BLT";
    unsigned pixel = block_pixel(dword[0]), special = dword[0] >> 12 & 3, samples = dword[0] >> 9 & 7;
    struct surface to = {
        .address = command_address(dword + 4),
        .tiling = dword[1] >> 30,
        .x = (int32_t)(dword[2] & 0xffff),
        .y = (int32_t)(dword[2] >> 16),
    };
    struct surface from = {
        .address = command_address(dword + 9),
        .tiling = dword[8] >> 30,
        .x = (int32_t)(dword[7] & 0xffff),
        .y = (int32_t)(dword[7] >> 16),
    };
    int32_t width = (int32_t)(dword[3] & 0xffff) - to.x, height = (int32_t)(dword[3] >> 16) - to.y;

    if (samples) {
        streamer_refuse(streamer, "%s of multisampled surfaces is not implemented", name);
        return;
    }
    if (count >= 22 && (!check_extension(streamer, name, dword + 16) || !check_extension(streamer, name, dword + 19)))
        return;
    if (special) /* resolving in place what was never compressed */
        return;
    to.pitch = surface_pitch((dword[1] & 0x3ffff) + 1, to.tiling);
    from.pitch = surface_pitch((dword[8] & 0x3ffff) + 1, from.tiling);
    if (!check(streamer, name, &to, pixel) || !check(streamer, name, &from, pixel) || width <= 0 || height <= 0)
        return;
    add_origin(&to, dword[6]);
    add_origin(&from, dword[11]);
    copy_rows(streamer, &to, &from, pixel, (uint64_t)width * pixel, (uint32_t)height);
}

void command_fast_color(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    static const char name[] = "XY_FAST_COLOR_BLT";
    unsigned pixel = block_pixel(dword[0]);
    struct surface to = {
        .address = command_address(dword + 4),
        .tiling = dword[1] >> 30,
        .x = (int32_t)(dword[2] & 0xffff),
        .y = (int32_t)(dword[2] >> 16),
    };
    int32_t width = (int32_t)(dword[3] & 0xffff) - to.x, height = (int32_t)(dword[3] >> 16) - to.y;
    unsigned char colour[16];

    if (dword[0] >> 9 & 7 || dword[0] >> 12 & 3) {
        streamer_refuse(streamer, "%s of multisampled surfaces or with fast clears is not implemented", name);
        return;
    }
    if (count >= 16 && !check_extension(streamer, name, dword + 13))
        return;
    to.pitch = surface_pitch((dword[1] & 0x3ffff) + 1, to.tiling);
    if (!check(streamer, name, &to, pixel) || width <= 0)
        return;
    add_origin(&to, dword[6]);
    for (unsigned i = 0; i < sizeof(colour); i++)
        colour[i] = (unsigned char)(dword[7 + i / 4] >> i % 4 * 8);
    for (int32_t row = 0; row < height; row++)
        for (uint64_t done = 0, bytes = (uint64_t)width * pixel; done < bytes;) {
            uint64_t run;
            uint64_t offset =
                tiling_offset(to.tiling, (uint64_t)to.x * pixel + done, (uint64_t)(to.y + row), to.pitch, pixel, &run);
            uint64_t part = least(bytes - done, run);
            if (!streamer_fill(streamer, to.address + offset, colour, pixel, part))
                return;
            done += part;
        }
}
