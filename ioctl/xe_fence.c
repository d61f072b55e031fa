#include "xe_fence.h"
#include "slice.h"
#include "xe_uapi.h"

#include <errno.h>
#include <stdlib.h>

struct xe_fence {
    /* Written by a kernel worker in this process's memory. */
    uint64_t written;
    uint64_t expected;
    struct xe_fence *next;
};

struct xe_fence *xe_fence_create(struct xe_device *device)
{
    (void)device;
    return calloc(1, sizeof(struct xe_fence));
}

uint64_t *xe_fence_arm(struct xe_fence *fence, uint64_t *value)
{
    *value = ++fence->expected;
    return &fence->written;
}

void xe_fence_disarm(struct xe_fence *fence)
{
    fence->expected--;
}

static bool reached(const uint64_t *address, uint64_t value)
{
    return __atomic_load_n(address, __ATOMIC_ACQUIRE) == value;
}

int xe_wait_value(struct xe_device *device, const uint64_t *address, uint64_t value, uint32_t queue, int64_t deadline)
{
    int64_t left = deadline - now_ns();
    struct drm_xe_wait_user_fence wait = {
        .addr = (uint64_t)(uintptr_t)address,
        .op = DRM_XE_UFENCE_WAIT_OP_EQ,
        .value = value,
        .mask = UINT64_MAX,
        .timeout = left < 0          ? 0
                   : left < SLICE_NS ? left
                                     : SLICE_NS,
        .exec_queue_id = queue,
    };
    int rc;

    if (reached(address, value))
        return 0;
    /* Not xe_ioctl(): a signal has to get back to Python. */
    rc = xe_ioctl_once(device, DRM_IOCTL_XE_WAIT_USER_FENCE, &wait);
    if (reached(address, value))
        return 0;
    if (rc == -ETIME && now_ns() < deadline)
        return -EINTR;
    /* The kernel compared equal before this thread could see the store: look again. */
    return rc == 0 ? -EINTR : rc;
}

int xe_fence_wait(struct xe_device *device, struct xe_fence *fence, int64_t deadline)
{
    return xe_wait_value(device, &fence->written, fence->expected, 0, deadline);
}

void xe_fence_destroy(struct xe_device *device, struct xe_fence *fence)
{
    struct xe_fence **parked;

    if (!fence)
        return;
    if (reached(&fence->written, fence->expected)) {
        free(fence);
        return;
    }
    xe_handles_lock(device);
    parked = xe_device_parked_fences(device);
    fence->next = *parked;
    *parked = fence;
    xe_handles_unlock(device);
}

void xe_fences_free(struct xe_device *device)
{
    struct xe_fence **parked = xe_device_parked_fences(device);

    while (*parked) {
        struct xe_fence *fence = *parked;

        *parked = fence->next;
        free(fence);
    }
}
