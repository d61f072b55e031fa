#include "xe_device.h"
#include "xe_fence.h"
#include "xe_uapi.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct handle_entry {
    uint64_t size;
    uint32_t references;
    uint32_t flags;
};

struct xe_device {
    const struct xe_ops *ops;
    int fd;
    /* Guards everything below. */
    pthread_mutex_t lock;
    /* Indexed by GEM handle: the kernel gives the lowest free number, so the table stays dense. */
    struct handle_entry *handles;
    uint64_t capacity;
    uint64_t live;
    struct xe_fence *parked_fences;
};

static int kernel_open(const char *path, int flags)
{
    return open(path, flags);
}

static int kernel_ioctl(int fd, unsigned long request, void *argument)
{
    return ioctl(fd, request, argument);
}

static void *kernel_mmap(void *address, size_t length, int prot, int flags, int fd, int64_t offset)
{
    return mmap(address, length, prot, flags, fd, (off_t)offset);
}

const struct xe_ops *xe_kernel_ops(void)
{
    static const struct xe_ops ops = {.open = kernel_open, .close = close, .ioctl = kernel_ioctl, .mmap = kernel_mmap};
    return &ops;
}

struct xe_device *xe_device_open(const struct xe_ops *ops, const char *path, int *error)
{
    struct xe_device *device = calloc(1, sizeof(*device));

    if (!device) {
        *error = -ENOMEM;
        return NULL;
    }
    device->ops = ops;
    do {
        device->fd = ops->open(path, O_RDWR | O_CLOEXEC);
    } while (device->fd < 0 && errno == EINTR);
    if (device->fd < 0) {
        *error = -errno;
        free(device);
        return NULL;
    }
    pthread_mutex_init(&device->lock, NULL);
    *error = 0;
    return device;
}

void xe_device_close(struct xe_device *device)
{
    if (!device)
        return;
    device->ops->close(device->fd);
    /* Only now is no bind left that could still write to one of them. */
    xe_fences_free(device);
    pthread_mutex_destroy(&device->lock);
    free(device->handles);
    free(device);
}

int xe_device_fd(const struct xe_device *device)
{
    return device->fd;
}

int xe_ioctl_once(struct xe_device *device, unsigned long request, void *argument)
{
    return device->ops->ioctl(device->fd, request, argument) < 0 ? -errno : 0;
}

int xe_ioctl(struct xe_device *device, unsigned long request, void *argument)
{
    int rc;

    do {
        rc = xe_ioctl_once(device, request, argument);
    } while (rc == -EINTR);
    return rc;
}

uint64_t xe_mmap(struct xe_device *device, uint64_t address, uint64_t size, int prot, int flags, int fd,
                 uint64_t offset, int *error)
{
    void *at = device->ops->mmap((void *)(uintptr_t)address, size, prot, flags, fd, (int64_t)offset);

    *error = at == MAP_FAILED ? -errno : 0;
    return at == MAP_FAILED ? 0 : (uint64_t)(uintptr_t)at;
}

void xe_handles_lock(struct xe_device *device)
{
    pthread_mutex_lock(&device->lock);
}

void xe_handles_unlock(struct xe_device *device)
{
    pthread_mutex_unlock(&device->lock);
}

static struct handle_entry *lookup(struct xe_device *device, uint64_t handle)
{
    if (handle >= device->capacity || device->handles[handle].references == 0)
        return NULL;
    return &device->handles[handle];
}

static int grow(struct xe_device *device, uint64_t handle)
{
    uint64_t capacity = device->capacity ? device->capacity : 256;
    struct handle_entry *handles;

    while (capacity <= handle)
        capacity *= 2;
    if (capacity == device->capacity)
        return 0;
    handles = realloc(device->handles, capacity * sizeof(*handles));
    if (!handles)
        return -ENOMEM;
    memset(handles + device->capacity, 0, (capacity - device->capacity) * sizeof(*handles));
    device->handles = handles;
    device->capacity = capacity;
    return 0;
}

static int close_handle(struct xe_device *device, uint32_t handle)
{
    struct drm_gem_close arg = {.handle = handle};

    return xe_ioctl(device, DRM_IOCTL_GEM_CLOSE, &arg);
}

int xe_handle_adopt(struct xe_device *device, uint32_t handle, uint64_t size, uint32_t flags)
{
    struct handle_entry *entry;

    if (grow(device, handle) < 0) {
        close_handle(device, handle);
        return -ENOMEM;
    }
    entry = &device->handles[handle];
    if (entry->references == UINT32_MAX)
        return -EOVERFLOW;
    if (entry->references++ == 0) {
        entry->flags = flags;
        entry->size = size;
        device->live++;
    }
    return 0;
}

int xe_handle_flags(struct xe_device *device, uint64_t handle)
{
    const struct handle_entry *entry = lookup(device, handle);

    return entry ? (int)entry->flags : -EBADF;
}

uint64_t xe_handle_size(struct xe_device *device, uint64_t handle)
{
    const struct handle_entry *entry = lookup(device, handle);

    return entry ? entry->size : 0;
}

int xe_handle_retain(struct xe_device *device, uint64_t handle)
{
    struct handle_entry *entry = lookup(device, handle);

    if (!entry)
        return -EBADF;
    if (entry->references == UINT32_MAX)
        return -EOVERFLOW;
    entry->references++;
    return 0;
}

int xe_handle_release(struct xe_device *device, uint64_t handle)
{
    struct handle_entry *entry = lookup(device, handle);

    if (!entry)
        return -EBADF;
    if (--entry->references)
        return 0;
    device->live--;
    return close_handle(device, (uint32_t)handle);
}

uint64_t xe_handles_live(struct xe_device *device)
{
    uint64_t live;

    xe_handles_lock(device);
    live = device->live;
    xe_handles_unlock(device);
    return live;
}

struct xe_fence **xe_device_parked_fences(struct xe_device *device)
{
    return &device->parked_fences;
}
