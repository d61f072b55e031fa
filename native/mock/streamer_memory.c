/* What the commands do to memory: everything goes through spans, so a command may cross any number of mappings. */
#include "streamer.h"

#include <string.h>

bool streamer_span(struct streamer *streamer, uint64_t address, uint64_t size, enum gpu_access access,
                   struct gpu_bytes *span)
{
    /* Addresses are canonical: the bits above the address space repeat its top bit and mean nothing. */
    address &= (UINT64_C(1) << streamer->address_bits) - 1;
    if (streamer->memory.span(streamer->memory.owner, address, size, access, span, &streamer->fault))
        return true;
    if (streamer->result == STREAMER_RUNNING)
        streamer->result = STREAMER_FAULT;
    return false;
}

bool streamer_read(struct streamer *streamer, uint64_t address, void *buffer, uint64_t size)
{
    unsigned char *to = buffer;
    struct gpu_bytes span;
    while (size) {
        if (!streamer_span(streamer, address, size, GPU_READ, &span))
            return false;
        if (span.bytes)
            memcpy(to, span.bytes, span.size);
        else
            memset(to, 0, span.size);
        to += span.size;
        address += span.size;
        size -= span.size;
    }
    return true;
}

bool streamer_write(struct streamer *streamer, uint64_t address, const void *buffer, uint64_t size)
{
    const unsigned char *from = buffer;
    struct gpu_bytes span;
    while (size) {
        if (!streamer_span(streamer, address, size, GPU_WRITE, &span))
            return false;
        if (span.bytes)
            memcpy(span.bytes, from, span.size);
        from += span.size;
        address += span.size;
        size -= span.size;
    }
    return true;
}

static bool is_whole(const struct gpu_bytes *span, unsigned size)
{
    return span->bytes && span->size >= size && (uintptr_t)span->bytes % size == 0;
}

/* Aligned dwords and qwords are single accesses that order what came before: programs and other queues poll them. */
bool streamer_load(struct streamer *streamer, uint64_t address, unsigned size, uint64_t *value)
{
    struct gpu_bytes span;
    if (!streamer_span(streamer, address, size, GPU_READ, &span))
        return false;
    *value = 0;
    if (!is_whole(&span, size))
        return streamer_read(streamer, address, value, size);
    if (size == 8)
        *value = __atomic_load_n((uint64_t *)(void *)span.bytes, __ATOMIC_ACQUIRE);
    else
        *value = __atomic_load_n((uint32_t *)(void *)span.bytes, __ATOMIC_ACQUIRE);
    return true;
}

bool streamer_store(struct streamer *streamer, uint64_t address, unsigned size, uint64_t value)
{
    struct gpu_bytes span;
    if (!streamer_span(streamer, address, size, GPU_WRITE, &span))
        return false;
    if (!is_whole(&span, size))
        return streamer_write(streamer, address, &value, size);
    if (size == 8)
        __atomic_store_n((uint64_t *)(void *)span.bytes, value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)(void *)span.bytes, (uint32_t)value, __ATOMIC_RELEASE);
    return true;
}

bool streamer_copy(struct streamer *streamer, uint64_t to, uint64_t from, uint64_t size)
{
    struct gpu_bytes source, target;
    while (size) {
        if (!streamer_span(streamer, from, size, GPU_READ, &source) ||
            !streamer_span(streamer, to, source.size, GPU_WRITE, &target))
            return false;
        uint64_t part = target.size < source.size ? target.size : source.size;
        if (part > 1 << 20)
            part = 1 << 20;
        if (target.bytes && source.bytes)
            memmove(target.bytes, source.bytes, part);
        else if (target.bytes)
            memset(target.bytes, 0, part);
        to += part;
        from += part;
        size -= part;
        if (!streamer_poll(streamer, part))
            return false;
    }
    return true;
}

bool streamer_fill(struct streamer *streamer, uint64_t to, const unsigned char *pattern, unsigned pattern_size,
                   uint64_t size)
{
    struct gpu_bytes span;
    uint64_t phase = 0;
    while (size) {
        if (!streamer_span(streamer, to, size, GPU_WRITE, &span))
            return false;
        uint64_t part = span.size > 1 << 20 ? 1 << 20 : span.size;
        if (span.bytes && pattern_size == 1)
            memset(span.bytes, pattern[0], part);
        else if (span.bytes)
            for (uint64_t i = 0; i < part; i++)
                span.bytes[i] = pattern[(phase + i) % pattern_size];
        phase += part;
        to += part;
        size -= part;
        if (!streamer_poll(streamer, part))
            return false;
    }
    return true;
}
