#pragma once
/* Where the bytes of a tiled surface lie. */
#include <stdint.h>

/* As XY_BLOCK_COPY_BLT numbers them. */
enum tiling { TILING_LINEAR, TILING_X, TILING_4, TILING_64 };

/* Offset of byte column `x` of row `y`, and in *run how many bytes from there on are consecutive. `pitch`: bytes a row;
   `pixel`: bytes a pixel. */
uint64_t tiling_offset(enum tiling tiling, uint64_t x, uint64_t y, uint64_t pitch, unsigned pixel, uint64_t *run);
