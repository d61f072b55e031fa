#include "xe_blit.h"

/* Command encodings: Intel's public Programmer's Reference Manuals, volume "Command Reference: Instructions". */
#define BLT(opcode, length) (2u << 29 | (opcode) << 22 | ((length) - 2))
#define MI_BATCH_BUFFER_END (0x0au << 23)

enum {
    FAST_COPY = 0x42,
    FAST_COLOR = 0x44,
    MEM_COPY = 0x5a,
    MEM_SET = 0x5b,
    COPY_LENGTH = 10,
    SET_LENGTH = 7,
    /* Graphics IP 12.50 made it longer. */
    COLOR_LENGTH = 11,
    COLOR_LENGTH_1250 = 16,
};

/* Bit of MEM_COPY and MEM_SET: rows and a pitch, not one line. */
#define MATRIX (1u << 17)

/* The matrix forms here have rows of one page without gaps. 2048 of them (8 MiB) are about a millisecond's work, after
   which the engine can be preempted; 65536 bytes in a line are within the width of every generation. */
enum {
    ROW = 4096,
    ROWS = 2048,
    LINE = 65536,
    /* The XY commands want a base that is a multiple of a cache line, the rest in x; x is 15 bits. */
    XY_ALIGN = 64,
    XY_LINE = 16384,
};

static uint32_t low(uint64_t address)
{
    return (uint32_t)address;
}

static uint32_t high(uint64_t address)
{
    return (uint32_t)(address >> 32);
}

/* What the next command moves: `rows` of `width` bytes. */
struct shape {
    uint32_t width;
    uint32_t rows;
};

static struct shape next_shape(const struct xe_blit *blit, uint64_t dst, uint64_t src)
{
    uint64_t left = blit->size - blit->done;
    uint32_t line = blit->commands == XE_BLIT_MEM ? LINE : XY_LINE;
    int aligned = blit->commands == XE_BLIT_MEM || ((dst | (blit->fill ? 0 : src)) % XY_ALIGN) == 0;
    uint64_t rows = left / ROW;

    if (aligned && rows > 1)
        return (struct shape){.width = ROW, .rows = rows < ROWS ? (uint32_t)rows : ROWS};
    return (struct shape){.width = left < line ? (uint32_t)left : line, .rows = 1};
}

static uint32_t mem_copy(const struct xe_blit *blit, uint32_t *cs, struct shape shape, uint64_t dst, uint64_t src)
{
    cs[0] = BLT(MEM_COPY, COPY_LENGTH) | (shape.rows > 1 ? MATRIX : 0);
    cs[1] = shape.width - 1;
    cs[2] = shape.rows - 1;
    cs[3] = shape.width - 1;
    cs[4] = shape.width - 1;
    cs[5] = low(src);
    cs[6] = high(src);
    cs[7] = low(dst);
    cs[8] = high(dst);
    cs[9] = blit->graphics >= 2000 ? blit->mocs << 28 | blit->mocs << 3 : blit->mocs << 26 | blit->mocs << 1;
    return COPY_LENGTH;
}

static uint32_t mem_set(const struct xe_blit *blit, uint32_t *cs, struct shape shape, uint64_t dst)
{
    cs[0] = BLT(MEM_SET, SET_LENGTH) | (shape.rows > 1 ? MATRIX : 0);
    cs[1] = shape.width - 1;
    cs[2] = shape.rows - 1;
    cs[3] = shape.width - 1;
    cs[4] = low(dst);
    cs[5] = high(dst);
    cs[6] = (blit->value & 0xff) << 24 | blit->mocs << (blit->graphics >= 2000 ? 3 : 1);
    return SET_LENGTH;
}

/* Pixels are bytes, so x is bytes too. A line's pitch only has to hold it. */
static uint32_t xy_pitch(struct shape shape)
{
    return shape.rows > 1 ? shape.width : XY_LINE + XY_ALIGN;
}

static uint32_t xy_corner(struct shape shape, uint64_t address)
{
    return shape.rows << 16 | ((uint32_t)(address % XY_ALIGN) + shape.width);
}

static uint32_t fast_copy(uint32_t *cs, struct shape shape, uint64_t dst, uint64_t src)
{
    uint64_t dst_base = dst - dst % XY_ALIGN;
    uint64_t src_base = src - src % XY_ALIGN;

    cs[0] = BLT(FAST_COPY, COPY_LENGTH);
    cs[1] = xy_pitch(shape);
    cs[2] = (uint32_t)(dst - dst_base);
    cs[3] = xy_corner(shape, dst);
    cs[4] = low(dst_base);
    cs[5] = high(dst_base);
    cs[6] = (uint32_t)(src - src_base);
    cs[7] = xy_pitch(shape);
    cs[8] = low(src_base);
    cs[9] = high(src_base);
    return COPY_LENGTH;
}

static uint32_t fast_color(const struct xe_blit *blit, uint32_t *cs, struct shape shape, uint64_t dst)
{
    uint32_t length = blit->graphics >= 1250 ? COLOR_LENGTH_1250 : COLOR_LENGTH;
    uint64_t base = dst - dst % XY_ALIGN;

    for (uint32_t i = 0; i < length; i++)
        cs[i] = 0;
    cs[0] = BLT(FAST_COLOR, length);
    cs[1] = (xy_pitch(shape) - 1) | (blit->graphics >= 1250 ? blit->mocs << 22 : 0);
    cs[2] = (uint32_t)(dst - base);
    cs[3] = xy_corner(shape, dst);
    cs[4] = low(base);
    cs[5] = high(base);
    /* Where the destination lives: 0 device memory, 1 system memory. */
    cs[6] = blit->integrated << 31;
    cs[7] = (blit->value & 0xff) * 0x01010101u;
    return length;
}

uint32_t xe_blit_emit(struct xe_blit *blit, uint32_t *batch, uint32_t room)
{
    uint32_t used = 0;

    /* The longest command, the end, and a dword to keep the batch a multiple of eight bytes. */
    while (blit->done < blit->size && used + COLOR_LENGTH_1250 + 2 <= room) {
        uint64_t dst = blit->dst + blit->done;
        uint64_t src = blit->src + blit->done;
        struct shape shape = next_shape(blit, dst, src);

        if (blit->commands == XE_BLIT_MEM)
            used +=
                blit->fill ? mem_set(blit, batch + used, shape, dst) : mem_copy(blit, batch + used, shape, dst, src);
        else
            used += blit->fill ? fast_color(blit, batch + used, shape, dst) : fast_copy(batch + used, shape, dst, src);
        blit->done += (uint64_t)shape.width * shape.rows;
    }
    batch[used++] = MI_BATCH_BUFFER_END;
    if (used % 2)
        batch[used++] = 0;
    return used;
}
