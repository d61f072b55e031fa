#pragma once
/* Commands of the copy engines: byte-exact copies and fills of any size at any alignment, in batches. */
#include <stdint.h>

enum {
    /* MEM_COPY and MEM_SET: Ponte Vecchio, and graphics IP 20 (Xe2) on. */
    XE_BLIT_MEM,
    /* XY_FAST_COPY_BLT and XY_FAST_COLOR_BLT: what is older. */
    XE_BLIT_XY,
};

struct xe_blit {
    uint32_t commands;
    /* Graphics IP version, major * 100 + minor: the fields of MOCS moved. */
    uint32_t graphics;
    /* Index of the platform's uncached MOCS entry. */
    uint32_t mocs;
    /* 1: no device memory. */
    uint32_t integrated;
    /* 1: fill with value, src is not used. */
    uint32_t fill;
    uint32_t value;
    uint64_t dst;
    uint64_t src;
    uint64_t size;
    /* Progress in bytes, zero at first. */
    uint64_t done;
};

/* Writes as many commands as room dwords hold, ended by MI_BATCH_BUFFER_END; returns the dwords written, an even
   number. More batches are needed while done < size. room: at least 24. */
uint32_t xe_blit_emit(struct xe_blit *blit, uint32_t *batch, uint32_t room);
