/* Buffer objects: birth, bytes, accounting, death. */
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bo_map.h"
#include "bo_table.h"
#include "device.h"
#include "gem.h"
#include "leftover.h"
#include "purge.h"
#include "store.h"

struct bo *bo_new(struct device *dev, uint64_t size)
{
    struct bo *bo = calloc(1, sizeof(*bo));
    if (!bo)
        return NULL;
    atomic_init(&bo->refs, 1);
    bo->dev = dev;
    bo->size = size;
    bo->exporter = 0xff;
    return bo;
}

struct bo *bo_get(struct bo *bo)
{
    atomic_fetch_add_explicit(&bo->refs, 1, memory_order_relaxed);
    return bo;
}

static bool is_displaced(const struct bo *bo)
{
    return bo->region == REGION_SYSTEM && !(bo->placement >> REGION_SYSTEM & 1);
}

void bo_unpopulate_locked(struct bo *bo)
{
    if (!bo->resident)
        return;
    bo->dev->region_used[bo->region] -= bo->size;
    if (is_displaced(bo))
        bo->dev->displaced -= bo->size;
    bo->resident = false;
}

static void bo_free_locked(struct bo *bo)
{
    struct device *dev = bo->dev;
    leftover_add_locked(bo);
    if (bo->inode)
        bo_table_remove(dev->by_inode, BY_INODE, bo);
    if (bo->mmap_offset)
        bo_table_remove(dev->by_offset, BY_OFFSET, bo);
    bo_unpopulate_locked(bo);
    purge_forget_locked(bo);
    dev->num_objects--;
    bo_view_free(bo);
    if (bo->storage)
        storage_free(bo->storage);
    if (bo->vm)
        vm_put(bo->vm);
    free(bo);
}

void bo_put_locked(struct bo *bo)
{
    if (atomic_fetch_sub_explicit(&bo->refs, 1, memory_order_acq_rel) == 1)
        bo_free_locked(bo);
}

void bo_put(struct bo *bo)
{
    /* The tables find a bo without holding a reference, so the last one is given back under their lock. */
    unsigned refs = atomic_load_explicit(&bo->refs, memory_order_relaxed);
    while (refs > 1) {
        if (atomic_compare_exchange_weak_explicit(&bo->refs, &refs, refs - 1, memory_order_acq_rel,
                                                  memory_order_relaxed))
            return;
    }
    struct device *dev = bo->dev;
    pthread_mutex_lock(&dev->lock);
    bo_put_locked(bo);
    pthread_mutex_unlock(&dev->lock);
}

struct bo *bo_lookup(struct drm_file *file, uint32_t id)
{
    pthread_mutex_lock(&file->dev->lock);
    struct handle *handle = idr_find(&file->handles, id);
    struct bo *bo = handle ? bo_get(handle->bo) : NULL;
    pthread_mutex_unlock(&file->dev->lock);
    return bo;
}

int bo_populate_locked(struct bo *bo)
{
    if (bo->resident || bo->kind == BO_FOREIGN)
        return 0;
    struct device *dev = bo->dev;
    const uint64_t *size = dev->region_size;
    uint64_t *used = dev->region_used;
    bool vram = bo->placement >> REGION_VRAM & 1, system = bo->placement >> REGION_SYSTEM & 1;
    if (bo->size > size[vram ? REGION_VRAM : REGION_SYSTEM] && !(vram && system && bo->size <= size[REGION_SYSTEM]))
        return -ENOSPC;
    if (dev->dontneed && used[vram ? REGION_VRAM : REGION_SYSTEM] + bo->size > size[vram ? REGION_VRAM : REGION_SYSTEM])
        purge_reclaim_locked(dev);
    uint64_t room[2] = {
        used[REGION_SYSTEM] < size[REGION_SYSTEM] ? size[REGION_SYSTEM] - used[REGION_SYSTEM] : 0,
        used[REGION_VRAM] < size[REGION_VRAM] ? size[REGION_VRAM] - used[REGION_VRAM] : 0,
    };
    if (vram && bo->size <= room[REGION_VRAM])
        bo->region = REGION_VRAM;
    else if (bo->size <= room[REGION_SYSTEM]) /* in device memory after something else was evicted to system memory */
        bo->region = REGION_SYSTEM;
    else
        return vram ? -ENOSPC : -ENOMEM;
    used[bo->region] += bo->size;
    if (is_displaced(bo))
        dev->displaced += bo->size;
    bo->resident = true;
    return 0;
}

int bo_set_inode_locked(struct bo *bo, uint64_t inode_dev, uint64_t inode)
{
    bo->inode_dev = inode_dev;
    bo->inode = inode;
    int r = bo_table_add(&bo->dev->by_inode, BY_INODE, bo);
    if (r)
        bo->inode = 0;
    return r;
}

int bo_make_file_locked(struct bo *bo, int *keep_fd, int cloexec)
{
    if (keep_fd)
        *keep_fd = -1;
    if (bo->storage)
        return 0;
    struct store_attributes attributes = {
        .device = bo->dev->index,
        .placement = bo->placement,
        .caching = bo->caching,
        .flags = bo->flags,
    };
    strncpy(attributes.profile, bo->dev->profile->name, sizeof(attributes.profile) - 1);
    if (!bo->home)
        bo->home = store_home(&bo->serial);
    if (!bo->home)
        return -ENOMEM;
    int fd = storage_create(bo->home, bo->serial, &attributes, bo->size, cloexec, &bo->storage);
    if (fd < 0)
        return fd;
    struct stat st;
    int r = fstat(fd, &st) ? -errno : bo_set_inode_locked(bo, st.st_dev, st.st_ino);
    if (r || !keep_fd)
        close(fd);
    else
        *keep_fd = fd;
    if (r) {
        storage_free(bo->storage);
        bo->storage = NULL;
    }
    return r;
}

int bo_open_file(struct bo *bo, int flags)
{
    return storage_open(bo->storage, flags);
}

uint64_t bo_mmap_offset_locked(struct bo *bo)
{
    struct device *dev = bo->dev;
    if (bo->mmap_offset)
        return bo->mmap_offset;
    uint64_t again = bo->inode ? leftover_take_locked(dev, bo->inode_dev, bo->inode) : 0;
    /* Never used twice: an offset kept too long is refused instead of hitting another object. */
    bo->mmap_offset = again ? again : dev->next_offset;
    if (bo_table_add(&dev->by_offset, BY_OFFSET, bo)) {
        bo->mmap_offset = 0;
        return 0;
    }
    if (!again)
        dev->next_offset += (bo->size + PAGE_SIZE - 1) & ~(uint64_t)(PAGE_SIZE - 1);
    return bo->mmap_offset;
}
