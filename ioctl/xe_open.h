#pragma once
/* The importer's last steps for a few objects, in one call: check, import, bind, say so. */
#include "xe_bind.h"
#include "xe_device.h"

struct xe_open {
    /*
     * The exporter's columns, as they came, without padding; nothing about them is known. Of objects: u64 size; of
     * extents: u64 offset, u64 size, u32 object, u8 access.
     */
    const uint8_t *columns;
    uint64_t num_objects;
    uint64_t count;
    /* The exporter's; and all bytes of the extents, which are reserved from `address` on. */
    uint64_t page_size;
    uint64_t size;
    uint64_t address;
    uint32_t vm_id;
    uint16_t pat_own;
    uint16_t pat_imported;
    /* One an object. */
    const int32_t *fds;
    /* Out: one reference each. */
    uint64_t *objects;
    int64_t deadline;
    /* What is sent when all is done. */
    const uint8_t *last_word;
    uint64_t last_word_size;
    int32_t socket;
    /* Out: the kernel has taken the bind, on whose fence is to be waited if that is not NULL. */
    uint32_t submitted;
    struct xe_fence *fence;
    int64_t import_time;
};

/*
 * 0: bound, and said so as far as the peer listens; descriptors and socket are closed. An error with `submitted` 0:
 * nothing is left of it, the descriptors and the socket are as they were, and whoever goes step by step learns why;
 * -EBADMSG where the columns are not what they must be. An error with `submitted`: the descriptors are closed, the
 * objects are the caller's, and the fence, which is to be waited for (-EINTR) or given up.
 */
int xe_open_extents(struct xe_device *device, struct xe_open *open);
