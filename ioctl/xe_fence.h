#pragma once
/* User fences: eight bytes that the kernel or the GPU writes when a job is done. */
#include "xe_device.h"

struct xe_fence;

/* A fence in this process's own memory, for VM_BIND; NULL when there is no memory. */
struct xe_fence *xe_fence_create(struct xe_device *device);

/* The address and value that a drm_xe_sync of this fence carries; counts the fence as submitted. */
uint64_t *xe_fence_arm(struct xe_fence *fence, uint64_t *value);

/* The submission failed, so nobody will write to the fence. */
void xe_fence_disarm(struct xe_fence *fence);

/* Waits for the last submission. -EINTR: come again; -ETIME: the deadline has passed. */
int xe_fence_wait(struct xe_device *device, struct xe_fence *fence, int64_t deadline);

/* Ends the fence. One that was submitted and not yet written stays allocated until the device closes. */
void xe_fence_destroy(struct xe_device *device, struct xe_fence *fence);

/* Frees what xe_fence_destroy() had to keep; after the device's descriptor is closed. */
void xe_fences_free(struct xe_device *device);

/* Waits until the eight bytes at an address are value. queue: the exec queue they belong to, 0 for none. */
int xe_wait_value(struct xe_device *device, const uint64_t *address, uint64_t value, uint32_t queue, int64_t deadline);
