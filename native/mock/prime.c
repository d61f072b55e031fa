/* PRIME: dma-buf descriptors of objects and objects of descriptors. Identity is the file's inode. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bo_table.h"
#include "core.h"
#include "gem.h"
#include "handlers.h"
#include "store.h"

/* The kernel reserves the new descriptor before it looks at the handle: a full table is what a bad handle reports, too.
 */
static int no_room_for_fd(int otherwise)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    close(fd);
    return otherwise;
}

static int check_export_locked(struct bo *bo)
{
    if (bo->exported)
        return 0;
    if (bo->vm)
        return -EPERM;
    if (bo->purge != BO_WILLNEED)
        return bo->purge == BO_DONTNEED ? -EBUSY : -EINVAL;
    return bo_populate_locked(bo);
}

static int export_locked(struct handle *handle, uint32_t flags)
{
    struct bo *bo = handle->bo;
    int cloexec = flags & DRM_CLOEXEC ? O_CLOEXEC : 0;
    int access = bo->exported ? bo->access : flags & DRM_RDWR ? O_RDWR : O_RDONLY;
    int fd = -1;
    int r = bo_make_file_locked(bo, &fd, cloexec);
    if (!r && (fd < 0 || access == O_RDONLY)) {
        if (fd >= 0)
            close(fd);
        fd = bo_open_file(bo, access | cloexec);
        r = fd < 0 ? fd : 0;
    }
    if (r)
        return r;
    bo->access = access; /* the first export fixes it */
    bo->exported = true;
    handle->prime = true;
    return fd;
}

int prime_handle_to_fd_ioctl(struct drm_file *file, void *data)
{
    struct drm_prime_handle *args = data;
    if (args->flags & ~(uint32_t)(DRM_CLOEXEC | DRM_RDWR))
        return -EINVAL;
    pthread_mutex_lock(&file->dev->lock);
    struct handle *handle = idr_find(&file->handles, args->handle);
    int r = handle ? check_export_locked(handle->bo) : -ENOENT;
    if (r)
        r = no_room_for_fd(r);
    else
        r = export_locked(handle, args->flags);
    pthread_mutex_unlock(&file->dev->lock);
    if (r < 0)
        return r == -EMFILE || r == -ENFILE || r == -ENOENT || r == -EPERM || r == -EBUSY || r == -EINVAL ||
                       r == -ENOSPC
                   ? r
                   : -ENOMEM;
    args->fd = r;
    return 0;
}

/* What an unknown descriptor holds: its bo, with the file not adopted yet. NULL with *error. */
static struct bo *bo_of_stranger(struct device *dev, int fd, const struct stat *st, struct store_attributes *a,
                                 int *error)
{
    enum store_identity identity = S_ISREG(st->st_mode) || S_ISCHR(st->st_mode) ? storage_identify(fd, a) : STORE_ALIEN;
    *error = -EINVAL;
    if (identity == STORE_ALIEN || st->st_size <= 0)
        return NULL;
    bool same = identity == STORE_OURS && a->device == dev->index && !strcmp(a->profile, dev->profile->name);
    if (identity == STORE_OURS && !same) {
        bool vram_only = a->placement == 1u << REGION_VRAM;
        if (vram_only && !device_peers(dev, a->device)) {
            *error = -EOPNOTSUPP;
            return NULL;
        }
    }
    struct bo *bo = bo_new(dev, (uint64_t)st->st_size);
    if (!bo) {
        *error = -ENOMEM;
        return NULL;
    }
    bo->exported = true;
    int mode = fcntl(fd, F_GETFL);
    bo->access = mode >= 0 && (mode & O_ACCMODE) == O_RDONLY ? O_RDONLY : O_RDWR;
    if (same) {
        bo->placement = a->placement;
        bo->caching = (uint16_t)a->caching;
        bo->flags = a->flags;
    } else {
        bo->kind = BO_FOREIGN;
        bo->placement = 1u << REGION_SYSTEM;
        bo->exporter = identity == STORE_OURS && a->device < XE_MOCK_MAX_DEVICES ? (uint8_t)a->device : 0xff;
        if (identity != STORE_OURS)
            *a = (struct store_attributes){.device = 0xffff, .profile = "foreign"};
    }
    *error = 0;
    return bo;
}

static int import_handle_locked(struct drm_file *file, struct bo *bo, uint32_t *id)
{
    int r = 0;
    struct handle *known = handle_prime_locked(file, bo);
    *id = known ? known->id : handle_new_locked(file, bo, &r);
    if (*id && !known)
        bo->handles->prime = true;
    return r;
}

static int adopt_locked(struct bo *bo, int fd, const struct stat *st, const struct store_attributes *attributes)
{
    bool ours = attributes->device != 0xffff;
    int r = storage_adopt(fd, attributes, ours, &bo->storage);
    if (!r)
        r = bo_set_inode_locked(bo, st->st_dev, st->st_ino);
    if (!r && bo->kind == BO_NATIVE)
        r = bo_populate_locked(bo);
    return r;
}

int prime_fd_to_handle_ioctl(struct drm_file *file, void *data)
{
    struct drm_prime_handle *args = data;
    struct device *dev = file->dev;
    struct stat st;
    if (fstat(args->fd, &st))
        return -EBADF;
    uint32_t id = 0;
    int r = 0;
    pthread_mutex_lock(&dev->lock);
    struct bo *bo = bo_table_find(dev->by_inode, BY_INODE, st.st_ino, st.st_dev);
    if (bo) {
        r = import_handle_locked(file, bo, &id);
        bo->exported = true;
    }
    pthread_mutex_unlock(&dev->lock);

    if (!bo) {
        struct store_attributes attributes;
        struct bo *stranger = bo_of_stranger(dev, args->fd, &st, &attributes, &r);
        if (!stranger)
            return r;
        pthread_mutex_lock(&dev->lock);
        dev->num_objects++;
        bo = bo_table_find(dev->by_inode, BY_INODE, st.st_ino, st.st_dev); /* meanwhile another thread? */
        if (!bo) {
            r = adopt_locked(stranger, args->fd, &st, &attributes);
            bo = stranger;
        }
        if (!r)
            r = import_handle_locked(file, bo, &id);
        bo_put_locked(stranger);
        pthread_mutex_unlock(&dev->lock);
    }
    if (r)
        return r;
    args->handle = id;
    return 0;
}
