#pragma once
/* CPU access to objects: a lasting contiguous view, and byte-granular reads and writes through transient maps. */
#include "xe_device.h"

/* A view of extents back to back; offsets and sizes are multiples of the CPU's page size. */
struct xe_cpu_map {
    const uint64_t *objects;
    const uint64_t *offsets;
    const uint64_t *sizes;
    uint64_t count;
    uint32_t writable;
    /* XE_HANDLE_*: objects with one of these flags are refused. */
    uint32_t refuse;
    /* Out: the view, 0 until there is one. */
    uint64_t address;
    uint64_t size;
    /* Progress, zero at first; on an error the index of the failing extent. */
    uint64_t done;
};

/* -EINTR: call again. On any other error nothing stays mapped; -ENXIO: object `done` is not CPU-visible. */
int xe_cpu_map(struct xe_device *device, struct xe_cpu_map *map);

/* Unmaps a view; needs no device, so a view may outlive its own. */
int xe_cpu_unmap(uint64_t address, uint64_t size);

/* A copy between extents, any byte offset and size, and one buffer of their total size. */
struct xe_cpu_copy {
    const uint64_t *objects;
    const uint64_t *offsets;
    const uint64_t *sizes;
    uint64_t count;
    uint8_t *buffer;
    /* 1: into the objects. */
    uint32_t write;
    uint32_t refuse;
    /* Progress, zero at first: the extent, the bytes of it, the bytes of the buffer. */
    uint64_t extent;
    uint64_t inside;
    uint64_t position;
};

/* -EINTR: call again; -ENXIO: the object of `extent` is not CPU-visible. */
int xe_cpu_copy(struct xe_device *device, struct xe_cpu_copy *copy);
