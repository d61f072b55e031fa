/* GEM ioctls: create, close, names, numbers. */
#include <errno.h>
#include <fcntl.h>

#include "core.h"
#include "gem.h"
#include "handlers.h"
#include "store.h"

#define CREATE_FLAGS                                                                                                   \
    (DRM_XE_GEM_CREATE_FLAG_DEFER_BACKING | DRM_XE_GEM_CREATE_FLAG_SCANOUT |                                           \
     DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM | DRM_XE_GEM_CREATE_FLAG_NO_COMPRESSION)
#define MAX_EXTENSIONS 16
#define MMAP_OFFSET_SPACE (1ull << 40)

static int check_create(const struct device *dev, const struct drm_xe_gem_create *args)
{
    const uint32_t vram = 1u << REGION_VRAM;
    if (args->pad[0] || args->pad[1] || args->pad[2] || args->reserved[0] || args->reserved[1])
        return -EINVAL;
    if (!args->placement || args->placement & ~device_region_mask(dev))
        return -EINVAL;
    if (args->flags & ~(uint32_t)CREATE_FLAGS)
        return -EINVAL;
    if (args->handle)
        return -EINVAL;
    if (!args->size || args->size % PAGE_SIZE)
        return -EINVAL;
    if (args->flags & DRM_XE_GEM_CREATE_FLAG_NO_COMPRESSION && dev->profile->graphics_ver < 20)
        return -EOPNOTSUPP;
    if (args->flags & DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM && !(args->placement & vram))
        return -EINVAL;
    if (!args->cpu_caching || args->cpu_caching > DRM_XE_GEM_CPU_CACHING_WC)
        return -EINVAL;
    if (args->placement & vram && args->cpu_caching != DRM_XE_GEM_CPU_CACHING_WC)
        return -EINVAL;
    if (args->flags & DRM_XE_GEM_CREATE_FLAG_SCANOUT && args->cpu_caching == DRM_XE_GEM_CPU_CACHING_WB)
        return -EINVAL;
    return 0;
}

/* The only property is PXP, which the mock has not. */
static int walk_extensions(uint64_t link)
{
    for (int count = 0; link; count++) {
        struct drm_xe_ext_set_property extension;
        if (count == MAX_EXTENSIONS)
            return -E2BIG;
        if (copy_from_user(&extension.base, link, sizeof(extension.base)))
            return -EFAULT;
        if (extension.base.pad || extension.base.name != DRM_XE_GEM_CREATE_EXTENSION_SET_PROPERTY)
            return -EINVAL;
        if (copy_from_user(&extension, link, sizeof(extension)))
            return -EFAULT;
        if (extension.pad || extension.property != DRM_XE_GEM_CREATE_SET_PROPERTY_PXP_TYPE)
            return -EINVAL;
        if (extension.value == DRM_XE_PXP_TYPE_HWDRM)
            return -ENODEV;
        if (extension.value != DRM_XE_PXP_TYPE_NONE)
            return -EINVAL;
        link = extension.base.next_extension;
    }
    return 0;
}

static int backing_size(const struct device *dev, const struct drm_xe_gem_create *args)
{
    bool may_be_vram = args->placement >> REGION_VRAM & 1;
    return may_be_vram && args->size % dev->profile->min_page_size ? -EINVAL : 0;
}

int gem_create_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_gem_create *args = data;
    struct device *dev = file->dev;
    int r = check_create(dev, args);
    if (r)
        return r;
    struct vm *vm = NULL;
    if (args->vm_id) {
        vm = vm_lookup(file, args->vm_id);
        if (!vm)
            return -ENOENT;
    }
    struct bo *bo = NULL;
    r = backing_size(dev, args);
    if (!r) {
        bo = bo_new(dev, args->size);
        r = bo ? 0 : -ENOMEM;
    }
    if (r) {
        if (vm)
            vm_put(vm);
        return r;
    }
    bo->placement = args->placement;
    bo->flags = args->flags;
    bo->caching = args->cpu_caching;
    bo->vm = vm;
    bo->home = store_home(&bo->serial);
    bo->region = args->placement >> REGION_VRAM & 1 ? REGION_VRAM : REGION_SYSTEM;

    pthread_mutex_lock(&dev->lock);
    dev->num_objects++;
    if (!(args->flags & DRM_XE_GEM_CREATE_FLAG_DEFER_BACKING))
        r = bo_populate_locked(bo);
    else if (args->size > MMAP_OFFSET_SPACE)
        r = -ENOSPC; /* deferred memory is not counted, but every object has its place among the mmap offsets */
    if (!r && args->extensions) {
        pthread_mutex_unlock(&dev->lock);
        r = walk_extensions(args->extensions);
        pthread_mutex_lock(&dev->lock);
    }
    if (!r)
        args->handle = handle_new_locked(file, bo, &r);
    bo_put_locked(bo);
    pthread_mutex_unlock(&dev->lock);
    return r;
}

int gem_close_ioctl(struct drm_file *file, void *data)
{
    const struct drm_gem_close *args = data;
    pthread_mutex_lock(&file->dev->lock);
    int r = handle_close_locked(file, args->handle);
    pthread_mutex_unlock(&file->dev->lock);
    return r;
}

int gem_flink_ioctl(struct drm_file *file, void *data)
{
    struct drm_gem_flink *args = data;
    struct device *dev = file->dev;
    pthread_mutex_lock(&dev->lock);
    struct handle *handle = idr_find(&file->handles, args->handle);
    int r = handle ? 0 : -ENOENT;
    if (handle && !handle->bo->flink)
        handle->bo->flink = idr_alloc(&dev->flink_names, handle->bo, &r);
    if (!r)
        args->name = handle->bo->flink;
    pthread_mutex_unlock(&dev->lock);
    return r;
}

int gem_open_ioctl(struct drm_file *file, void *data)
{
    struct drm_gem_open *args = data;
    struct device *dev = file->dev;
    pthread_mutex_lock(&dev->lock);
    struct bo *bo = idr_find(&dev->flink_names, args->name);
    int r = bo ? 0 : -ENOENT;
    if (bo) {
        args->handle = handle_new_locked(file, bo, &r);
        args->size = r ? args->size : bo->size;
    }
    pthread_mutex_unlock(&dev->lock);
    return r;
}
