#include "neo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint8_t pattern_byte(uint32_t seed, size_t place)
{
    uint64_t x = (place ^ ((uint64_t)seed << 40)) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    /* Never the canary and never what fresh memory holds. */
    uint8_t byte = (uint8_t)(x >> 56);
    return byte == CANARY || byte == 0 ? 0x5a : byte;
}

void pattern_write(struct gpu *gpu, unsigned int device, void *to, size_t size, uint32_t seed)
{
    uint8_t *staging = gpu_host(gpu, size);
    for (size_t i = 0; i < size; i++)
        staging[i] = pattern_byte(seed, i);
    gpu_copy(gpu, device, to, staging, size);
    gpu_free(gpu, staging);
}

static void report(struct gpu *gpu, const char *what, size_t bad, size_t size, size_t first)
{
    gpu->looked_at += size;
    gpu->bad += bad;
    if (bad)
        fprintf(stderr, "%s: %zu of %zu bytes wrong, the first at 0x%zx\n", what, bad, size, first);
}

void pattern_check(struct gpu *gpu, unsigned int device, const void *from, size_t size, uint32_t seed, size_t place,
                   const char *what)
{
    uint8_t *staging = gpu_host(gpu, size);
    memset(staging, CANARY, size);
    gpu_copy(gpu, device, staging, from, size);
    size_t bad = 0, first = 0;
    for (size_t i = 0; i < size; i++) {
        if (staging[i] != pattern_byte(seed, place + i) && bad++ == 0)
            first = i;
    }
    gpu_free(gpu, staging);
    report(gpu, what, bad, size, first);
}

void value_check(struct gpu *gpu, unsigned int device, const void *from, size_t size, uint8_t value, const char *what)
{
    uint8_t *staging = gpu_host(gpu, size);
    memset(staging, CANARY, size);
    gpu_copy(gpu, device, staging, from, size);
    size_t bad = 0, first = 0;
    for (size_t i = 0; i < size; i++) {
        if (staging[i] != value && bad++ == 0)
            first = i;
    }
    gpu_free(gpu, staging);
    report(gpu, what, bad, size, first);
}

void bytes_check(struct gpu *gpu, const uint8_t *found, const uint8_t *wanted, size_t size, const char *what)
{
    size_t bad = 0, first = 0;
    for (size_t i = 0; i < size; i++) {
        if (found[i] != wanted[i] && bad++ == 0)
            first = i;
    }
    report(gpu, what, bad, size, first);
}
