#include "purge.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "bo_map.h"

static void unlink_bo(struct bo *bo)
{
    struct bo **link = &bo->dev->dontneed;
    while (*link && *link != bo)
        link = &(*link)->next_dontneed;
    if (*link)
        *link = bo->next_dontneed;
}

void purge_update_locked(struct bo *bo)
{
    if (bo->purge == BO_PURGED || !bo->vmas)
        return;
    bool dontneed = !bo->exported && bo->kind == BO_NATIVE;
    for (const struct vma *vma = bo->vmas; vma && dontneed; vma = vma->next_in_bo)
        dontneed = vma->purge == DRM_XE_VMA_PURGEABLE_STATE_DONTNEED;
    if (dontneed == (bo->purge == BO_DONTNEED))
        return;
    if (dontneed) {
        bo->next_dontneed = bo->dev->dontneed;
        bo->dev->dontneed = bo;
    } else {
        unlink_bo(bo);
    }
    bo->purge = dontneed ? BO_DONTNEED : BO_WILLNEED;
}

bool purge_advise(struct vma *vma, bool dontneed)
{
    struct device *dev = vma->vm->dev;
    pthread_mutex_lock(&dev->lock);
    vma->purge = dontneed ? DRM_XE_VMA_PURGEABLE_STATE_DONTNEED : DRM_XE_VMA_PURGEABLE_STATE_WILLNEED;
    purge_update_locked(vma->bo);
    bool kept = vma->bo->purge != BO_PURGED;
    pthread_mutex_unlock(&dev->lock);
    return kept;
}

/* Mappings that programs have of it become untouchable: SIGBUS, as the kernel answers. */
static void drop_bytes(struct bo *bo)
{
    int fd = bo->storage ? bo_open_file(bo, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    if (ftruncate(fd, 0))
        errno = 0; /* the old bytes stay: harmless, they were offered for loss only */
    close(fd);
}

void purge_reclaim_locked(struct device *dev)
{
    struct bo **link = &dev->dontneed;
    while (*link) {
        struct bo *bo = *link;
        if (!bo_view_purge(bo)) { /* an engine uses it right now */
            link = &bo->next_dontneed;
            continue;
        }
        *link = bo->next_dontneed;
        bo_unpopulate_locked(bo);
        drop_bytes(bo);
    }
}

void purge_forget_locked(struct bo *bo)
{
    if (bo->purge == BO_DONTNEED)
        unlink_bo(bo);
}
