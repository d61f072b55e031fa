/* HANDLE_TO_FD and FD_TO_HANDLE. */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "exec_handlers.h"
#include "sync_file.h"
#include "syncobj.h"

#define HANDLE_TO_FD_FLAGS (DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE | DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_TIMELINE)
#define FD_TO_HANDLE_FLAGS (DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE | DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_TIMELINE)

/* The kernel reserves the descriptor before it looks at the handle. */
static int check_room(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

static int export_fence(struct drm_file *file, uint32_t handle, uint64_t point)
{
    int r = check_room();
    if (r)
        return r;
    struct syncobj *syncobj = syncobj_lookup(file, handle);
    if (!syncobj)
        return -ENOENT;
    struct fence *fence = syncobj_fence(syncobj, point);
    syncobj_put(syncobj);
    if (!fence)
        return -EINVAL;
    r = sync_file_export(fence);
    fence_put(fence);
    return r;
}

int syncobj_handle_to_fd_ioctl(struct drm_file *file, void *data)
{
    struct drm_syncobj_handle *args = data;
    int fd;
    if (args->pad || args->flags & ~(uint32_t)HANDLE_TO_FD_FLAGS)
        return -EINVAL;
    if (args->flags & DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE) {
        uint64_t point = args->flags & DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_TIMELINE ? args->point : 0;
        fd = export_fence(file, args->handle, point);
    } else {
        if (args->point)
            return -EINVAL;
        struct syncobj *syncobj = syncobj_lookup(file, args->handle);
        if (!syncobj)
            return -EINVAL;
        fd = syncobj_export(syncobj);
        syncobj_put(syncobj);
    }
    if (fd < 0)
        return fd;
    args->fd = fd;
    return 0;
}

static int import_fence(struct drm_file *file, const struct drm_syncobj_handle *args)
{
    int r;
    struct fence *fence = sync_file_import(args->fd, &r);
    if (!fence)
        return r;
    struct syncobj *syncobj = syncobj_lookup(file, args->handle);
    uint64_t point = args->flags & DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_TIMELINE ? args->point : 0;
    r = syncobj ? syncobj_install(syncobj, point, fence) : -ENOENT;
    syncobj_put(syncobj);
    fence_put(fence);
    return r;
}

int syncobj_fd_to_handle_ioctl(struct drm_file *file, void *data)
{
    struct drm_syncobj_handle *args = data;
    if (args->pad || args->flags & ~(uint32_t)FD_TO_HANDLE_FLAGS)
        return -EINVAL;
    if (args->flags & DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE)
        return import_fence(file, args);
    if (args->point)
        return -EINVAL;
    struct syncobj *syncobj = syncobj_import(args->fd);
    if (!syncobj)
        return -EINVAL;
    int r = syncobj_add_handle(file, syncobj, &args->handle);
    if (r)
        syncobj_put(syncobj);
    return r;
}
