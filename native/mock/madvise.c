/* MADVISE: attributes of the mappings in a range. */
#include <errno.h>
#include <fcntl.h>

#include "core.h"
#include "exec_handlers.h"
#include "purge.h"

static int check_location(const struct drm_xe_madvise *args)
{
    int32_t fd = (int32_t)args->preferred_mem_loc.devmem_fd;
    if (fd < DRM_XE_PREFERRED_LOC_DEFAULT_SYSTEM)
        return -EINVAL;
    if (fd <= 0 && args->preferred_mem_loc.region_instance)
        return -EINVAL;
    if (args->preferred_mem_loc.migration_policy > DRM_XE_MIGRATE_ONLY_SYSTEM_PAGES)
        return -EINVAL;
    return args->preferred_mem_loc.reserved ? -EINVAL : 0;
}

static int check_pat(const struct profile *profile, const struct drm_xe_madvise *args)
{
    if (args->pat_index.val >= profile->num_pat || !profile->pat[args->pat_index.val].valid)
        return -EINVAL;
    return args->pat_index.pad || args->pat_index.reserved ? -EINVAL : 0;
}

static int check_args(const struct profile *profile, const struct drm_xe_madvise *args)
{
    int r = 0;
    if (args->start % PAGE_SIZE || args->range % PAGE_SIZE || args->range < PAGE_SIZE)
        return -EINVAL;
    switch (args->type) {
    case DRM_XE_MEM_RANGE_ATTR_PREFERRED_LOC:
        r = check_location(args);
        break;
    case DRM_XE_MEM_RANGE_ATTR_ATOMIC:
        if (args->atomic.val > DRM_XE_ATOMIC_CPU || args->atomic.pad || args->atomic.reserved)
            r = -EINVAL;
        break;
    case DRM_XE_MEM_RANGE_ATTR_PAT:
        r = check_pat(profile, args);
        break;
    case DRM_XE_VMA_ATTR_PURGEABLE_STATE:
        if (args->purge_state_val.val > DRM_XE_VMA_PURGEABLE_STATE_DONTNEED || args->purge_state_val.pad)
            r = -EINVAL;
        break;
    default:
        r = -EINVAL;
    }
    return r ? r : args->reserved[0] || args->reserved[1] ? -EINVAL : 0;
}

/* Where the answer of a purgeable call goes: nowhere (0), or readable and zero before. */
static int check_retained(const struct drm_xe_madvise *args)
{
    uint32_t before;
    if (args->type != DRM_XE_VMA_ATTR_PURGEABLE_STATE || !args->purge_state_val.retained_ptr)
        return 0;
    if (copy_from_user(&before, args->purge_state_val.retained_ptr, sizeof(before)))
        return -EFAULT;
    return before ? -EINVAL : 0;
}

/* Another device's memory as the preferred place needs a fast link between the two, which no profile has. */
static int check_device(const struct drm_xe_madvise *args)
{
    int32_t fd = (int32_t)args->preferred_mem_loc.devmem_fd;
    if (args->type != DRM_XE_MEM_RANGE_ATTR_PREFERRED_LOC || fd <= 0)
        return 0;
    return fcntl(fd, F_GETFD) < 0 ? -ENOENT : -ENOLINK;
}

/* Objects are advised whole; what has no object is cut at the ends of the range. vm->lock held, as below. */
static bool is_cut(const struct vma *vma, uint64_t va)
{
    return vma && vma->start < va && !vma->bo;
}

static int split_at(struct vm *vm, uint64_t va)
{
    return is_cut(vma_first(vm, va), va) ? vma_split(vm, va) : 0;
}

/* The driver forgets where the memory of the parts is and does not find it at 0 (7.2.13). */
static bool cuts_userptr(struct vm *vm, uint64_t va)
{
    const struct vma *vma = vma_first(vm, va);
    return is_cut(vma, va) && vma->flags & VMA_USERPTR;
}

/* The memory an object may live in decides who can do atomics on it (as measured; device atomics are possible
 * everywhere). */
static bool atomic_is_possible(const struct bo *bo, uint32_t value)
{
    bool system = bo->placement >> REGION_SYSTEM & 1, vram = bo->placement >> REGION_VRAM & 1;
    switch (value) {
    case DRM_XE_ATOMIC_GLOBAL:
        return system && vram;
    case DRM_XE_ATOMIC_CPU:
        return system;
    default:
        return true;
    }
}

static bool pat_is_possible(const struct vma *vma, uint32_t index)
{
    const struct profile *profile = vma->vm->dev->profile;
    if (profile->discrete || profile->pat[index].coherent)
        return true;
    bool combining = vma->bo && vma->bo->kind == BO_NATIVE && vma->bo->caching == DRM_XE_GEM_CPU_CACHING_WC;
    return combining || vma->flags & VMA_NULL;
}

static bool is_possible(const struct vma *vma, const struct drm_xe_madvise *args)
{
    switch (args->type) {
    case DRM_XE_MEM_RANGE_ATTR_ATOMIC:
        return !vma->bo || atomic_is_possible(vma->bo, args->atomic.val);
    case DRM_XE_MEM_RANGE_ATTR_PAT:
        return pat_is_possible(vma, args->pat_index.val);
    default:
        return true;
    }
}

static void apply(struct vma *vma, const struct drm_xe_madvise *args, bool *retained)
{
    switch (args->type) {
    case DRM_XE_MEM_RANGE_ATTR_PREFERRED_LOC:
        if (!(vma->flags & VMA_MIRROR)) /* the driver's to-do: what has an object keeps its place */
            break;
        vma->preferred_loc = (int32_t)args->preferred_mem_loc.devmem_fd;
        vma->migration_policy = (uint8_t)args->preferred_mem_loc.migration_policy;
        vma->region_instance = args->preferred_mem_loc.region_instance;
        break;
    case DRM_XE_MEM_RANGE_ATTR_ATOMIC:
        if (vma->flags & VMA_USERPTR && args->atomic.val != DRM_XE_ATOMIC_DEVICE) /* what these have anyway */
            break;
        vma->atomic = (uint8_t)args->atomic.val;
        break;
    case DRM_XE_MEM_RANGE_ATTR_PAT:
        vma->pat = (uint16_t)args->pat_index.val;
        break;
    case DRM_XE_VMA_ATTR_PURGEABLE_STATE:
        if (vma->bo && !purge_advise(vma, args->purge_state_val.val == DRM_XE_VMA_PURGEABLE_STATE_DONTNEED))
            *retained = false;
        break;
    }
}

static int advise(struct vm *vm, const struct drm_xe_madvise *args, bool *retained)
{
    uint64_t start = args->start & (vm->size - 1), end = start + args->range;
    if (vm->closed || vm->banned)
        return -ENOENT;
    if (cuts_userptr(vm, start) || cuts_userptr(vm, end))
        return -EFAULT;
    int r = split_at(vm, start);
    if (!r)
        r = split_at(vm, end);
    for (struct vma *vma = vma_first(vm, start); vma && vma->start < end && !r; vma = vma_next(vm, vma))
        r = is_possible(vma, args) ? 0 : -EINVAL;
    for (struct vma *vma = vma_first(vm, start); vma && vma->start < end && !r; vma = vma_next(vm, vma))
        apply(vma, args, retained);
    return r;
}

int madvise_ioctl(struct drm_file *file, void *data)
{
    const struct drm_xe_madvise *args = data;
    struct vm *vm = vm_lookup(file, args->vm_id);
    bool retained = true;
    if (!vm)
        return -EINVAL;
    int r = check_args(file->dev->profile, args);
    if (!r)
        r = check_retained(args);
    if (!r)
        r = check_device(args);
    if (!r) {
        pthread_mutex_lock(&vm->lock);
        r = advise(vm, args, &retained);
        pthread_mutex_unlock(&vm->lock);
    }
    if (!r && args->type == DRM_XE_VMA_ATTR_PURGEABLE_STATE && args->purge_state_val.retained_ptr)
        r = copy_to_user(args->purge_state_val.retained_ptr, &(uint32_t){retained}, sizeof(uint32_t));
    vm_put(vm);
    return r;
}
