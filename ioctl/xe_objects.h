#pragma once
/*
 * Loops over GEM objects, one call whatever their number. Handles are columns of u64. Every function returns 0 or
 * -errno and leaves in *done how many entries it finished: on an error that is the index of the one that failed.
 * Those that may be long take *done as their start too and return -EINTR after a while: call again to go on.
 */
#include "xe_device.h"

/* Creates objects of size bytes each, one reference each; handle_flags: XE_HANDLE_*. */
int xe_objects_create(struct xe_device *device, uint64_t size, uint32_t placement, uint32_t flags, uint16_t cpu_caching,
                      uint32_t handle_flags, uint64_t *handles, uint64_t count, uint64_t *done);

/* One reference more for every entry; on an error none. */
int xe_objects_retain(struct xe_device *device, const uint64_t *handles, uint64_t count, uint64_t *done);

/* One reference less for every entry. Goes through to the end; *done is the first entry that failed, else count. */
int xe_objects_release(struct xe_device *device, const uint64_t *handles, uint64_t count, uint64_t *done);

struct xe_column {
    const uint64_t *handles;
    uint64_t count;
    uint64_t done;
};

/* xe_objects_release() as ze_ipc._held calls functions. */
int xe_column_release(struct xe_device *device, struct xe_column *column);

/* A dma-buf descriptor for every handle. */
int xe_objects_export(struct xe_device *device, const uint64_t *handles, uint64_t count, int32_t *fds, uint64_t *done);

/* The size in bytes of every object. */
int xe_objects_sizes(struct xe_device *device, const uint64_t *handles, uint64_t count, uint64_t *sizes,
                     uint64_t *done);

/* A handle with one reference for every dma-buf descriptor, which stays the caller's. */
int xe_objects_import(struct xe_device *device, const int32_t *fds, uint64_t count, uint64_t *handles, uint64_t *done);
