#include "streamer_tiling.h"

enum { TILE4_WIDTH = 128, TILE4_HEIGHT = 32, TILE4_BYTES = 4096, TILEX_WIDTH = 512, TILEX_HEIGHT = 8, OWORD = 16 };

/* 512 bytes by 8 rows, a row after the other. */
static uint64_t offset_x(uint64_t x, uint64_t y, uint64_t pitch, uint64_t *run)
{
    uint64_t tile = y / TILEX_HEIGHT * pitch * TILEX_HEIGHT + x / TILEX_WIDTH * (TILEX_WIDTH * TILEX_HEIGHT);
    *run = TILEX_WIDTH - x % TILEX_WIDTH;
    return tile + y % TILEX_HEIGHT * TILEX_WIDTH + x % TILEX_WIDTH;
}

/* Within 4 KiB, cells of 16 bytes by 4 rows; cell number, low bit first: x4 x5 y2 x6 y3 y4. */
static uint64_t within_tile4(uint64_t x, uint64_t y)
{
    uint64_t column = x / OWORD, row = y / 4;
    uint64_t cell = (column & 3) | (row & 1) << 2 | (column & 4) << 1 | (row >> 1) << 4;
    return cell * 64 + y % 4 * OWORD + x % OWORD;
}

static uint64_t offset_4(uint64_t x, uint64_t y, uint64_t pitch, uint64_t *run)
{
    uint64_t tile = y / TILE4_HEIGHT * pitch * TILE4_HEIGHT + x / TILE4_WIDTH * TILE4_BYTES;
    *run = OWORD - x % OWORD;
    return tile + within_tile4(x % TILE4_WIDTH, y % TILE4_HEIGHT);
}

/* 64 KiB; the shape depends on the pixel. The order inside is a guess (Tile4 after Tile4): right for whatever goes in
   and out by blits, which is all a program can do without knowing the layout itself. */
static uint64_t offset_64(uint64_t x, uint64_t y, uint64_t pitch, unsigned pixel, uint64_t *run)
{
    uint64_t width = pixel == 1 ? 256 : pixel <= 4 ? 512 : 1024, height = 65536 / width;
    uint64_t tile = y / height * pitch * height + x / width * 65536;
    uint64_t inner_x = x % width, inner_y = y % height;
    uint64_t cell = inner_y / TILE4_HEIGHT * (width / TILE4_WIDTH) + inner_x / TILE4_WIDTH;
    *run = OWORD - x % OWORD;
    return tile + cell * TILE4_BYTES + within_tile4(inner_x % TILE4_WIDTH, inner_y % TILE4_HEIGHT);
}

uint64_t tiling_offset(enum tiling tiling, uint64_t x, uint64_t y, uint64_t pitch, unsigned pixel, uint64_t *run)
{
    switch (tiling) {
    case TILING_X:
        return offset_x(x, y, pitch, run);
    case TILING_4:
        return offset_4(x, y, pitch, run);
    case TILING_64:
        return offset_64(x, y, pitch, pixel, run);
    case TILING_LINEAR:
        break;
    }
    *run = UINT64_MAX;
    return y * pitch + x;
}
