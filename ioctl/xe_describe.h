#pragma once
/* A few mappings as the columns of a manifest, their objects held, in one call. */
#include "xe_device.h"

enum {
    DESCRIBE_MOST = 64,
    /* Bytes of the columns of one mapping, at most: u64 object size; u64 offset, u64 size, u32 object, u8 access. */
    DESCRIBE_ROW = 29,
};

struct xe_describe {
    /* Back to back, DESCRIBE_MOST at most. */
    const uint64_t *starts;
    const uint64_t *ends;
    const uint64_t *objects;
    const uint64_t *offsets;
    const uint8_t *access;
    uint64_t count;
    /* Out: the columns as they travel (ze_ipc.manifest), without padding, DESCRIBE_ROW bytes a mapping at most. */
    uint8_t *columns;
    uint64_t size;
    uint64_t extents;
    /* Out: the objects in order of first appearance, each with one more reference. */
    uint64_t *distinct;
    uint64_t num_distinct;
};

/* 0 or -errno, and then nothing is held: -EBADF where an object has no reference. */
int xe_describe(struct xe_device *device, struct xe_describe *what);
