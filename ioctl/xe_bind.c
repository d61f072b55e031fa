#include "xe_bind.h"
#include "xe_fence.h"
#include "xe_uapi.h"

#include <errno.h>
#include <stdlib.h>

static int submit(struct xe_device *device, struct drm_xe_vm_bind *arg, struct xe_fence *fence, int64_t deadline,
                  uint32_t *submitted)
{
    struct drm_xe_sync sync = {.type = DRM_XE_SYNC_TYPE_USER_FENCE, .flags = DRM_XE_SYNC_FLAG_SIGNAL};
    int rc;

    sync.addr = (uint64_t)(uintptr_t)xe_fence_arm(fence, &sync.timeline_value);
    arg->num_syncs = 1;
    arg->syncs = (uint64_t)(uintptr_t)&sync;
    rc = xe_ioctl(device, DRM_IOCTL_XE_VM_BIND, arg);
    *submitted = rc == 0;
    if (rc < 0) {
        xe_fence_disarm(fence);
        return rc;
    }
    return xe_fence_wait(device, fence, deadline);
}

/* -EBADF when a handle has no reference of ours. */
static int fill(struct xe_device *device, const struct xe_bind *bind, uint64_t first, uint64_t count, uint64_t address,
                struct drm_xe_vm_bind_op *ops)
{
    int flags = 0;

    xe_handles_lock(device);
    for (uint64_t i = 0; i < count && flags >= 0; i++) {
        uint64_t at = first + i;

        flags = xe_handle_flags(device, bind->objects[at]);
        ops[i] = (struct drm_xe_vm_bind_op){
            .obj = (uint32_t)bind->objects[at],
            .pat_index = flags & XE_HANDLE_IMPORTED ? bind->pat_imported : bind->pat_own,
            .obj_offset = bind->offsets[at],
            .range = bind->sizes[at],
            .addr = address,
            .op = DRM_XE_VM_BIND_OP_MAP,
            .flags = bind->access[at] ? DRM_XE_VM_BIND_FLAG_READONLY : 0,
        };
        address += bind->sizes[at];
    }
    xe_handles_unlock(device);
    return flags < 0 ? flags : 0;
}

int xe_bind_map(struct xe_device *device, const struct xe_bind *bind, uint64_t first, uint64_t count, uint64_t address,
                struct xe_fence *fence, int64_t deadline, uint32_t *submitted)
{
    struct drm_xe_vm_bind arg = {.vm_id = bind->vm_id, .num_binds = (uint32_t)count};
    struct drm_xe_vm_bind_op *ops = NULL;
    int rc;

    *submitted = 0;
    /* The kernel's own bound on the array is INT_MAX bytes. */
    if (count > INT32_MAX / sizeof(*ops))
        return -ENOBUFS;
    if (count == 1) {
        rc = fill(device, bind, first, 1, address, &arg.bind);
    } else {
        ops = malloc(count * sizeof(*ops));
        if (!ops)
            return -ENOBUFS;
        rc = fill(device, bind, first, count, address, ops);
        arg.vector_of_binds = (uint64_t)(uintptr_t)ops;
    }
    if (rc == 0)
        rc = submit(device, &arg, fence, deadline, submitted);
    free(ops);
    return rc;
}

int xe_bind_unmap(struct xe_device *device, struct xe_unmap *what)
{
    struct drm_xe_vm_bind arg = {
        .vm_id = what->vm_id,
        .num_binds = 1,
        .bind = {.pat_index = what->pat_index,
                 .range = what->size,
                 .addr = what->address,
                 .op = DRM_XE_VM_BIND_OP_UNMAP},
    };

    return submit(device, &arg, what->fence, what->deadline, &what->submitted);
}
