/* EXEC_QUEUE_CREATE. */
#include <errno.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec_handlers.h"
#include "queue.h"
#include "uaccess.h"

enum {
    CHAIN_MAX = 16,
    PRIORITY_MAX = 2,
    PRIORITY_MAX_UNPRIVILEGED = 1,
    TIMESLICE_MIN_US = 1,
    TIMESLICE_MAX_US = 10000000,
    MULTI_QUEUE_PRIORITY_MAX = 2,
    PXP_HWDRM = 1,
};

static bool has_cap_sys_nice(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    if (syscall(SYS_capget, &header, data))
        return false;
    return data[CAP_SYS_NICE / 32].effective & 1u << CAP_SYS_NICE % 32;
}

static int set_property(const struct exec_queue *queue, uint32_t property, uint64_t value)
{
    bool bind = queue->engine_class == DRM_XE_ENGINE_CLASS_VM_BIND;
    switch (property) {
    case DRM_XE_EXEC_QUEUE_SET_PROPERTY_PRIORITY:
        if (value > PRIORITY_MAX)
            return -EINVAL;
        return value > PRIORITY_MAX_UNPRIVILEGED && !has_cap_sys_nice() ? -EPERM : 0;
    case DRM_XE_EXEC_QUEUE_SET_PROPERTY_TIMESLICE:
        return value < TIMESLICE_MIN_US || value > TIMESLICE_MAX_US ? -EINVAL : 0; /* the usual kernel configuration */
    case DRM_XE_EXEC_QUEUE_SET_PROPERTY_PXP_TYPE:
        return value == 0 ? 0 : value == PXP_HWDRM ? -ENODEV : -EINVAL;
    }
    /* The newer ones concern the context of an engine; none of it shows here. */
    if (bind)
        return -EINVAL;
    switch (property) {
    case DRM_XE_EXEC_QUEUE_SET_HANG_REPLAY_STATE:
        /* A pointer to a context image, which is at least a page. */
        return check_user_range(value, PAGE_SIZE, 0);
    case DRM_XE_EXEC_QUEUE_SET_PROPERTY_MULTI_GROUP:
        return -ENODEV;
    case DRM_XE_EXEC_QUEUE_SET_DISABLE_STATE_CACHE_PERF_FIX:
        if (queue->engine_class != DRM_XE_ENGINE_CLASS_RENDER && queue->engine_class != DRM_XE_ENGINE_CLASS_COMPUTE)
            return -EOPNOTSUPP;
        return value > 1 ? -EINVAL : 0;
    default: /* MULTI_QUEUE_PRIORITY needs a group, too */
        return -EINVAL;
    }
}

static int walk_extensions(const struct exec_queue *queue, uint64_t next)
{
    struct drm_xe_ext_set_property extension;
    for (int links = 0; next; links++) {
        if (links == CHAIN_MAX)
            return -E2BIG;
        if (copy_from_user(&extension.base, next, sizeof(extension.base)))
            return -EFAULT;
        if (extension.base.pad || extension.base.name != DRM_XE_EXEC_QUEUE_EXTENSION_SET_PROPERTY)
            return -EINVAL;
        if (copy_from_user(&extension, next, sizeof(extension)))
            return -EFAULT;
        if (extension.pad)
            return -EINVAL;
        int r = set_property(queue, extension.property, extension.value);
        if (r)
            return r;
        next = extension.base.next_extension;
    }
    return 0;
}

/* Placements lie one after the other, each with its `width` engines, which must follow one another. */
static int check_engines(const struct profile *profile, const struct drm_xe_exec_queue_create *args,
                         const struct drm_xe_engine_class_instance *engines)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < args->width; i++) {
        uint64_t mask = 0;
        for (uint32_t j = 0; j < args->num_placements; j++) {
            const struct drm_xe_engine_class_instance *engine = &engines[j * args->width + i];
            if (!profile_engine(profile, engine->engine_class, engine->engine_instance, engine->gt_id))
                return -EINVAL;
            if (engine->engine_class != engines[0].engine_class || engine->gt_id != engines[0].gt_id)
                return -EINVAL;
            mask |= UINT64_C(1) << engine->engine_instance;
        }
        if (i && mask != before << 1)
            return -EINVAL;
        before = mask;
    }
    bool parallel = engines[0].engine_class == DRM_XE_ENGINE_CLASS_VIDEO_DECODE ||
                    engines[0].engine_class == DRM_XE_ENGINE_CLASS_VIDEO_ENHANCE;
    return args->width > 1 && !parallel ? -EOPNOTSUPP : 0;
}

static bool vm_is_usable(struct vm *vm)
{
    pthread_mutex_lock(&vm->lock);
    bool usable = !vm->closed && !vm->banned;
    pthread_mutex_unlock(&vm->lock);
    return usable;
}

static int add_queue(struct drm_file *file, struct exec_queue *queue)
{
    int error = 0;
    bool bind = queue->engine_class == DRM_XE_ENGINE_CLASS_VM_BIND;
    if (!bind) {
        pthread_mutex_lock(&queue->vm->lock);
        queue->vm->num_queues++;
        pthread_mutex_unlock(&queue->vm->lock);
    }
    pthread_mutex_lock(&file->lock);
    queue->id = idr_alloc(&file->queues, queue, &error);
    pthread_mutex_unlock(&file->lock);
    if (error && !bind) {
        pthread_mutex_lock(&queue->vm->lock);
        queue->vm->num_queues--;
        pthread_mutex_unlock(&queue->vm->lock);
    }
    return error;
}

int exec_queue_create_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_exec_queue_create *args = data;
    const struct profile *profile = file->dev->profile;
    struct drm_xe_engine_class_instance engines[QUEUE_WIDTH_MAX];
    uint32_t count = (uint32_t)args->width * args->num_placements;

    if (args->flags & ~(uint32_t)DRM_XE_EXEC_QUEUE_LOW_LATENCY_HINT || args->reserved[0] || args->reserved[1])
        return -EINVAL;
    if (count == 0 || count > QUEUE_WIDTH_MAX)
        return -EINVAL;
    if (copy_from_user(engines, args->instances, count * sizeof(*engines)))
        return -EFAULT;
    if (engines[0].gt_id >= profile->num_gts)
        return -EINVAL;
    if (engines[0].engine_class == DRM_XE_ENGINE_CLASS_VM_BIND) {
        if (args->width != 1 || args->num_placements != 1 || engines[0].engine_instance != 0)
            return -EINVAL;
    } else {
        int r = check_engines(profile, args, engines);
        if (r)
            return r;
    }
    struct vm *vm = vm_lookup(file, args->vm_id);
    if (!vm)
        return -ENOENT;
    if (!vm_is_usable(vm)) {
        vm_put(vm);
        return -ENOENT;
    }
    struct exec_queue *queue = queue_new(file->dev, vm);
    vm_put(vm);
    if (!queue)
        return -ENOMEM;
    queue->engine_class = engines[0].engine_class;
    queue->instance = engines[0].engine_instance;
    queue->gt = engines[0].gt_id;
    queue->width = args->width;
    int r = walk_extensions(queue, args->extensions);
    if (!r)
        r = add_queue(file, queue);
    if (r) {
        queue_put(queue);
        return r;
    }
    args->exec_queue_id = queue->id;
    return 0;
}
