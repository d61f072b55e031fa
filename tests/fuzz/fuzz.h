#pragma once
/* What the fuzz targets in C share: bytes of the input taken one after another, zeros at its end. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

struct input {
    const uint8_t *bytes;
    size_t left;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline uint8_t take8(struct input *input)
{
    if (input->left == 0)
        return 0;
    input->left--;
    return *input->bytes++;
}

static inline uint16_t take16(struct input *input)
{
    uint16_t low = take8(input);

    return (uint16_t)(low | take8(input) << 8);
}

static inline uint32_t take32(struct input *input)
{
    uint32_t low = take16(input);

    return low | (uint32_t)take16(input) << 16;
}

static inline uint64_t take64(struct input *input)
{
    uint64_t low = take32(input);

    return low | (uint64_t)take32(input) << 32;
}
