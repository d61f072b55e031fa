#pragma once
/* VM_BIND in arrays. Every submission carries a user fence and is waited for. */
#include "xe_device.h"

struct xe_fence;

/* What is to be mapped: one index across the columns is one extent. */
struct xe_bind {
    uint32_t vm_id;
    /* The page attributes for objects made here, and for those that came in through a dma-buf. */
    uint16_t pat_own;
    uint16_t pat_imported;
    const uint64_t *objects;
    const uint64_t *offsets;
    const uint64_t *sizes;
    /* 1: read-only. */
    const uint8_t *access;
};

/*
 * Maps the extents [first, first + count) back to back from address on: one array, one job, all or nothing by the
 * kernel's own rule. Then as xe_fence_wait(). *submitted says whether the kernel took the array: an error with
 * *submitted 0 left nothing behind.
 */
int xe_bind_map(struct xe_device *device, const struct xe_bind *bind, uint64_t first, uint64_t count, uint64_t address,
                struct xe_fence *fence, int64_t deadline, uint32_t *submitted);

struct xe_unmap {
    uint32_t vm_id;
    uint16_t pat_index;
    uint64_t address;
    uint64_t size;
    struct xe_fence *fence;
    int64_t deadline;
    /* Out. */
    uint32_t submitted;
};

/* Unmaps [address, address + size) as one op; as xe_bind_map(). */
int xe_bind_unmap(struct xe_device *device, struct xe_unmap *what);
