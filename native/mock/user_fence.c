/* WAIT_USER_FENCE. */
#include <errno.h>

#include "core.h"
#include "handlers.h"

static bool passes(const struct drm_xe_wait_user_fence *args, uint64_t memory)
{
    uint64_t left = memory & args->mask, right = args->value & args->mask;
    switch (args->op) {
    case DRM_XE_UFENCE_WAIT_OP_EQ:
        return left == right;
    case DRM_XE_UFENCE_WAIT_OP_NEQ:
        return left != right;
    case DRM_XE_UFENCE_WAIT_OP_GT:
        return left > right;
    case DRM_XE_UFENCE_WAIT_OP_GTE:
        return left >= right;
    case DRM_XE_UFENCE_WAIT_OP_LT:
        return left < right;
    default:
        return left <= right;
    }
}

/* A plain store of the CPU wakes nobody, as on the hardware: only written fences do. */
static int wait_until(struct device *dev, const struct drm_xe_wait_user_fence *args, struct exec_queue *queue,
                      int64_t deadline)
{
    for (;;) {
        unsigned seen = waiter_seen(&dev->user_fences);
        uint64_t memory;
        if (load_user_u64(args->addr, &memory))
            return -EFAULT;
        if (passes(args, memory))
            return 0;
        if (queue && queue_is_reset(queue))
            return -EIO;
        int r = waiter_wait(&dev->user_fences, seen, deadline);
        if (r == -ETIME) {
            if (load_user_u64(args->addr, &memory))
                return -EFAULT;
            return passes(args, memory) ? 0 : -ETIME;
        }
        if (r)
            return r;
    }
}

int wait_user_fence_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_wait_user_fence *args = data;
    if (args->extensions || args->pad || args->pad2 || args->reserved[0] || args->reserved[1])
        return -EINVAL;
    if (args->flags & ~DRM_XE_UFENCE_WAIT_FLAG_ABSTIME)
        return -EINVAL;
    if (args->op > DRM_XE_UFENCE_WAIT_OP_LTE)
        return -EINVAL;
    if (args->addr & 7)
        return -EINVAL;
    struct exec_queue *queue = NULL;
    if (args->exec_queue_id) {
        queue = queue_lookup(file, args->exec_queue_id);
        if (!queue)
            return -ENOENT;
    }
    bool absolute = args->flags & DRM_XE_UFENCE_WAIT_FLAG_ABSTIME;
    int64_t start = now_ns(), timeout = args->timeout, deadline;
    if (timeout < 0)
        deadline = FOREVER;
    else if (absolute)
        deadline = timeout;
    else
        deadline = timeout > FOREVER - start ? FOREVER : start + timeout;
    int r = wait_until(file->dev, args, queue, deadline);
    if (!absolute) {
        int64_t whole = timeout < 0 ? INT64_MAX : timeout, elapsed = now_ns() - start;
        args->timeout = elapsed < whole ? whole - elapsed : 0;
    }
    if (queue)
        queue_put(queue);
    return r;
}
