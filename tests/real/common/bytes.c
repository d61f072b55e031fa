#include "client.h"

#include <stdio.h>

uint8_t pattern_byte(uint32_t seed, size_t place)
{
    uint64_t x = (place ^ ((uint64_t)seed << 40)) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    /* Never the canary and never what fresh memory holds. */
    uint8_t byte = (uint8_t)(x >> 56);
    return byte == CANARY || byte == 0 ? 0x5a : byte;
}

void bytes_report(struct gpu *gpu, const char *what, size_t bad, size_t size, size_t first)
{
    gpu->looked_at += size;
    gpu->bad += bad;
    if (bad)
        fprintf(stderr, "%s: %zu of %zu bytes wrong, the first at 0x%zx\n", what, bad, size, first);
}

void bytes_check(struct gpu *gpu, const uint8_t *found, const uint8_t *wanted, size_t size, const char *what)
{
    size_t bad = 0, first = 0;
    for (size_t i = 0; i < size; i++) {
        if (found[i] != wanted[i] && bad++ == 0)
            first = i;
    }
    bytes_report(gpu, what, bad, size, first);
}
