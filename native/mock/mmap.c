/* CPU mappings of objects: by offset in the DRM file, or of a dma-buf. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "barrier.h"
#include "bo_table.h"
#include "core.h"
#include "dma_buf_fences.h"
#include "gem.h"
#include "handlers.h"
#include "leftover.h"
#include "store.h"

#define BARRIER_OFFSET 0x50000

int gem_mmap_offset_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_gem_mmap_offset *args = data;
    struct device *dev = file->dev;
    if (args->extensions || args->reserved[0] || args->reserved[1])
        return -EINVAL;
    if (args->flags & ~(uint32_t)DRM_XE_MMAP_OFFSET_FLAG_PCI_BARRIER)
        return -EINVAL;
    if (args->flags & DRM_XE_MMAP_OFFSET_FLAG_PCI_BARRIER) {
        if (!dev->profile->discrete || args->handle)
            return -EINVAL;
        args->offset = BARRIER_OFFSET;
        return 0;
    }
    pthread_mutex_lock(&dev->lock);
    struct handle *handle = idr_find(&file->handles, args->handle);
    uint64_t offset = handle ? bo_mmap_offset_locked(handle->bo) : 0;
    pthread_mutex_unlock(&dev->lock);
    if (!handle)
        return -ENOENT;
    if (!offset)
        return -ENOMEM;
    args->offset = offset;
    return 0;
}

static void *failed(int error)
{
    errno = error;
    return MAP_FAILED;
}

static bool is_private(int flags)
{
    return (flags & MAP_TYPE) == MAP_PRIVATE;
}

static void *map_barrier(struct device *dev, void *address, size_t size, int prot, int flags)
{
    if (!dev->profile->discrete || size > PAGE_SIZE || is_private(flags) || prot & (PROT_READ | PROT_EXEC))
        return failed(EINVAL);
    return barrier_map(address, flags & MAP_FIXED);
}

/* Memory that cannot be touched: a mapping of an empty file. */
static void *map_untouchable(void *address, size_t size, int prot, int flags)
{
    int fd = memfd_create("xe-mock-sigbus", MFD_CLOEXEC);
    if (fd < 0)
        return failed(ENOMEM);
    void *mapped = mmap(address, size, prot, flags, fd, 0);
    close(fd);
    return mapped;
}

static int find_mappable_locked(struct drm_file *file, size_t size, int flags, int64_t offset, struct bo **found)
{
    struct bo *bo = bo_table_find(file->dev->by_offset, BY_OFFSET, (uint64_t)offset, 0);
    if (!bo && leftover_lives_locked(file->dev, (uint64_t)offset, size))
        return EACCES; /* who has a handle gives the object its offset back, below */
    if (!bo || offset == 0 || size > bo->size)
        return EINVAL;
    if (!handle_exists_locked(file, bo))
        return EACCES;
    if (bo->purge != BO_WILLNEED)
        return bo->purge == BO_DONTNEED ? EBUSY : EINVAL;
    if (is_private(flags))
        return EINVAL;
    if (bo->kind == BO_NATIVE) {
        int r = bo_make_file_locked(bo, NULL, O_CLOEXEC);
        if (r)
            return r == -EMFILE || r == -ENFILE ? -r : ENOMEM;
    }
    bo->cpu_mapped = true;
    *found = bo_get(bo);
    return 0;
}

void *drm_mmap(struct drm_file *file, void *address, size_t size, int prot, int flags, int64_t offset)
{
    struct device *dev = file->dev;
    if (offset == BARRIER_OFFSET)
        return map_barrier(dev, address, size, prot, flags);
    size_t whole = (size + PAGE_SIZE - 1) & ~(size_t)(PAGE_SIZE - 1);
    struct bo *bo = NULL;
    pthread_mutex_lock(&dev->lock);
    int error = size ? find_mappable_locked(file, whole, flags, offset, &bo) : EINVAL;
    pthread_mutex_unlock(&dev->lock);
    if (error)
        return failed(error);

    if (prot & PROT_WRITE) /* as on the hardware; and what reads memory by system call can read it */
        prot |= PROT_READ;
    void *mapped = MAP_FAILED;
    if (bo->kind == BO_FOREIGN) {
        mapped = map_untouchable(address, size, prot, flags);
    } else {
        int fd = bo_open_file(bo, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            errno = fd == -EMFILE || fd == -ENFILE ? -fd : ENOMEM;
        else
            mapped = mmap(address, size, prot, flags, fd, 0);
        error = errno;
        if (fd >= 0)
            close(fd);
        errno = error;
    }
    bo_put(bo); /* the mapping itself keeps the file */
    return mapped;
}

bool dma_buf_is_ours(int fd)
{
    struct stat st;
    struct store_attributes attributes;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && storage_identify(fd, &attributes) == STORE_OURS;
}

void *dma_buf_mmap(int fd, void *address, size_t size, int prot, int flags, int64_t offset)
{
    struct stat st;
    if (fstat(fd, &st))
        return failed(EBADF);
    uint64_t length = (uint64_t)st.st_size;
    if (prot & PROT_WRITE && !is_private(flags) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return failed(EACCES); /* the file system layer looks before the driver does */
    if (is_private(flags) || offset < 0 || (uint64_t)offset > length || size > length - (uint64_t)offset)
        return failed(EINVAL);
    if (prot & PROT_WRITE)
        prot |= PROT_READ;
    return mmap(address, size, prot, flags, fd, (off_t)offset);
}

static int dma_buf_sync_ioctl(int fd, void *argument)
{
    struct dma_buf_sync sync;
    if (copy_from_user(&sync, (uint64_t)argument, sizeof(sync)))
        return -EFAULT;
    if (sync.flags & ~(uint64_t)DMA_BUF_SYNC_VALID_FLAGS_MASK || !(sync.flags & DMA_BUF_SYNC_RW))
        return -EINVAL;
    return sync.flags & DMA_BUF_SYNC_END ? 0 : dma_buf_wait(fd, sync.flags & DMA_BUF_SYNC_RW);
}

/* The name goes with the file, for whoever asks /proc; a file system that cannot keep it costs only that. */
static int dma_buf_set_name_ioctl(int fd, void *argument)
{
    char name[DMA_BUF_NAME_LEN];
    for (size_t i = 0; i < sizeof(name); i++) {
        if (copy_from_user(&name[i], (uint64_t)argument + i, 1))
            return -EFAULT;
        if (!name[i]) {
            int saved = errno;
            fsetxattr(fd, DMA_BUF_NAME_ATTRIBUTE, name, i, 0);
            errno = saved;
            return 0;
        }
    }
    return -EINVAL;
}

int dma_buf_ioctl(int fd, unsigned long request, void *argument)
{
    switch ((uint32_t)request) {
    case DMA_BUF_IOCTL_SYNC:
        return dma_buf_sync_ioctl(fd, argument);
    case DMA_BUF_IOCTL_EXPORT_SYNC_FILE:
        return dma_buf_export_sync_file(fd, argument);
    case DMA_BUF_IOCTL_IMPORT_SYNC_FILE:
        return dma_buf_import_sync_file(fd, argument);
    case DMA_BUF_SET_NAME_A:
    case DMA_BUF_SET_NAME_B:
        return dma_buf_set_name_ioctl(fd, argument);
    default:
        return -ENOTTY;
    }
}
