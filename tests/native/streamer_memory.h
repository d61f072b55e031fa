#pragma once
/* An address space for the streamer's tests: scattered pages, so that every access of more than a page crosses
 * mappings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "streamer.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)
#define CHECK_EQUAL(left, right)                                                                                       \
    do {                                                                                                               \
        unsigned long long left_value = (left), right_value = (right);                                                 \
        if (left_value != right_value) {                                                                               \
            fprintf(stderr, "%s:%d: %s is 0x%llx, %s is 0x%llx\n", __FILE__, __LINE__, #left, left_value, #right,      \
                    right_value);                                                                                      \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { PAGES = 1024, PAGE = 4096 };
/* Pages of the window [BASE, BASE + PAGES * PAGE): first writable ones, then these. */
enum { READ_ONLY_PAGE = 1000, NULL_PAGE = 1008, HOLE_PAGE = 1016 };
#define BASE UINT64_C(0x7fff00000000)
#define VA(page, offset) (BASE + (uint64_t)(page) * PAGE + (offset))

struct test_memory {
    unsigned char *pages; /* shuffled */
    unsigned spans, releases;
};

static inline unsigned char *test_page(struct test_memory *memory, unsigned page)
{
    return memory->pages + (size_t)(page * 389u % PAGES) * PAGE;
}

static inline bool test_span(void *owner, uint64_t address, uint64_t size, enum gpu_access access,
                             struct gpu_bytes *span, struct gpu_fault *fault)
{
    struct test_memory *memory = owner;
    uint64_t page = (address - BASE) / PAGE, offset = address % PAGE;
    *fault = (struct gpu_fault){.address = address, .access = access, .type = GPU_FAULT_NOT_PRESENT};
    if (address < BASE || page >= HOLE_PAGE)
        return false;
    fault->type = GPU_FAULT_WRITE;
    if (page >= READ_ONLY_PAGE && page < NULL_PAGE && access != GPU_READ)
        return false;
    span->size = size < PAGE - offset ? size : PAGE - offset;
    span->bytes = page >= NULL_PAGE ? NULL : test_page(memory, (unsigned)page) + offset;
    memory->spans++;
    return true;
}

static inline void test_release(void *owner)
{
    ((struct test_memory *)owner)->releases++;
}

static inline void test_peek(struct test_memory *memory, uint64_t address, void *buffer, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)buffer)[i] = test_page(memory, (unsigned)((address + i - BASE) / PAGE))[(address + i) % PAGE];
}

static inline void test_poke(struct test_memory *memory, uint64_t address, const void *buffer, size_t size)
{
    for (size_t i = 0; i < size; i++)
        test_page(memory, (unsigned)((address + i - BASE) / PAGE))[(address + i) % PAGE] =
            ((const unsigned char *)buffer)[i];
}

static inline uint64_t test_peek64(struct test_memory *memory, uint64_t address)
{
    uint64_t value;
    test_peek(memory, address, &value, sizeof(value));
    return value;
}

static inline uint32_t test_peek32(struct test_memory *memory, uint64_t address)
{
    return (uint32_t)test_peek64(memory, address);
}

static inline void test_poke64(struct test_memory *memory, uint64_t address, uint64_t value)
{
    test_poke(memory, address, &value, sizeof(value));
}

static inline struct test_memory *test_memory_new(struct streamer *streamer)
{
    struct test_memory *memory = calloc(1, sizeof(*memory));
    CHECK(memory);
    memory->pages = calloc(PAGES, PAGE);
    CHECK(memory->pages);
    streamer->memory = (struct gpu_memory){.span = test_span, .release = test_release, .owner = memory};
    return memory;
}

static inline void test_memory_free(struct test_memory *memory)
{
    free(memory->pages);
    free(memory);
}

#define LOW(address) (uint32_t)(address)
#define HIGH(address) (uint32_t)((address) >> 32)
#define ADDRESS(address) LOW(address), HIGH(address)
#define BATCH VA(0, 0)
#define BATCH_END 0x05000000u
#define MI(opcode, length) ((uint32_t)(opcode) << 23 | (uint32_t)(length))
#define BLT(opcode, length) (2u << 29 | (uint32_t)(opcode) << 22 | (uint32_t)(length))

/* Runs the dwords, which should end the batch themselves, from BATCH on. */
#define RUN(streamer, ...)                                                                                             \
    ({                                                                                                                 \
        const uint32_t run_dwords[] = {__VA_ARGS__};                                                                   \
        test_poke((streamer)->memory.owner, BATCH, run_dwords, sizeof(run_dwords));                                    \
        streamer_run(streamer, BATCH);                                                                                 \
    })
