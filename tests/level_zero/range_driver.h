#pragma once
/* Results, and how the test driver's functions get into the tables that a loader asks for. */
#include <stddef.h>
#include <stdint.h>

#include "ze_api.cdef"
#include "ze_range.cdef"

enum {
    SUCCESS = 0,
    OUT_OF_HOST_MEMORY = 0x70000002,
    OUT_OF_DEVICE_MEMORY = 0x70000003,
    UNSUPPORTED_FEATURE = 0x78000003,
    INVALID_ARGUMENT = 0x78000004,
    INVALID_NULL_HANDLE = 0x78000005,
    INVALID_NULL_POINTER = 0x78000007,
    INVALID_SIZE = 0x78000008,
    UNSUPPORTED_SIZE = 0x78000009,
    INVALID_ENUMERATION = 0x7800000c,
    ADDRESS_NOT_FOUND = 0x78000021,
};

#define EXPORT __attribute__((visibility("default")))

#define API(name, ...)                                                                                                 \
    EXPORT uint32_t name(__VA_ARGS__);                                                                                 \
    EXPORT uint32_t name(__VA_ARGS__)

struct slot {
    uint32_t index;
    /* A loader that is older than this has no room for the entry. */
    uint32_t since;
    void *function;
};

#define TABLE(name, ...)                                                                                               \
    API(name, uint32_t version, void **table)                                                                          \
    {                                                                                                                  \
        const struct slot slots[] = {__VA_ARGS__};                                                                     \
        for (size_t i = 0; i < sizeof(slots) / sizeof(*slots); i++) {                                                  \
            if (slots[i].since <= version)                                                                             \
                table[slots[i].index] = slots[i].function;                                                             \
        }                                                                                                              \
        return SUCCESS;                                                                                                \
    }
