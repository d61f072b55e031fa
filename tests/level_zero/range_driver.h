#pragma once
/* The test driver: results, memory, and how its functions get into the tables that a loader asks for. */
#include <stdbool.h>
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
    UNSUPPORTED_ENUMERATION = 0x7800000d,
    ADDRESS_NOT_FOUND = 0x78000021,
};

enum { PAGE = 4096 };

enum kind {
    RESERVED,
    MAPPED,
    USM,
    /* A window that was opened, and the parts below it. */
    IMPORTED,
    PART,
    KINDS,
};

struct physical {
    int fd;
    size_t size;
    uint32_t references;
};

struct span {
    char *start;
    size_t size;
    /* Of what is mapped: held by the span. */
    struct physical *physical;
    size_t offset;
    uint32_t access;
    /* Bytes of an imported window, which begins at offset. */
    size_t window;
};

/* Around all that follow, and what they give is used. */
void spans_lock(void);
void spans_unlock(void);
struct span *span_at(enum kind kind, const char *at);
bool span_within(enum kind kind, const char *start, const char *end);
void span_add(enum kind kind, struct span span);
void span_remove(enum kind kind, struct span *span);
struct physical *physical_new(int fd, size_t size);
void physical_drop(struct physical *physical);

/* Unmaps and forgets what an address is in. */
uint32_t drop(enum kind kind, const void *at);

/* Whether a handle is a context of this driver's, and no wrapper of it. */
bool is_context(const void *handle);

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

/* Of range_memory.c, for the table that range_ipc.c fills. */
EXPORT uint32_t zeMemAllocHost(void *c, const void *desc, size_t size, size_t alignment, void **out);
EXPORT uint32_t zeMemAllocDevice(void *c, const void *desc, size_t size, size_t alignment, void *d, void **out);
EXPORT uint32_t zeMemAllocShared(void *c, const void *desc, const void *host, size_t size, size_t alignment, void *d,
                                 void **out);
EXPORT uint32_t zeMemFree(void *c, void *at);
EXPORT uint32_t zeMemFreeExt(void *c, const void *desc, void *at);
EXPORT uint32_t zeMemGetAddressRange(void *c, const void *at, void **base, size_t *size);
