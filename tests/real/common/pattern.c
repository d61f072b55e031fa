#include "client.h"

#include <string.h>

void pattern_write(struct gpu *gpu, unsigned int device, void *to, size_t size, uint32_t seed)
{
    uint8_t *staging = gpu_host(gpu, size);
    for (size_t i = 0; i < size; i++)
        staging[i] = pattern_byte(seed, i);
    gpu_copy(gpu, device, to, staging, size);
    gpu_free(gpu, staging);
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
    bytes_report(gpu, what, bad, size, first);
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
    bytes_report(gpu, what, bad, size, first);
}
