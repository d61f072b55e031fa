#include "xe_objects.h"
#include "slice.h"
#include "xe_uapi.h"

#include <errno.h>
#include <sys/stat.h>

int xe_objects_create(struct xe_device *device, uint64_t size, uint32_t placement, uint32_t flags, uint16_t cpu_caching,
                      uint32_t handle_flags, uint64_t *handles, uint64_t count, uint64_t *done)
{
    int64_t until = now_ns() + SLICE_NS;

    for (; *done < count; ++*done) {
        struct drm_xe_gem_create arg = {
            .size = size, .placement = placement, .flags = flags, .cpu_caching = cpu_caching};
        int rc = xe_ioctl(device, DRM_IOCTL_XE_GEM_CREATE, &arg);

        if (rc < 0)
            return rc;
        xe_handles_lock(device);
        rc = xe_handle_adopt(device, arg.handle, size, handle_flags);
        xe_handles_unlock(device);
        if (rc < 0)
            return rc;
        handles[*done] = arg.handle;
        if (*done + 1 < count && now_ns() > until) {
            ++*done;
            return -EINTR;
        }
    }
    return 0;
}

int xe_objects_retain(struct xe_device *device, const uint64_t *handles, uint64_t count, uint64_t *done)
{
    uint64_t i;
    int rc = 0;

    xe_handles_lock(device);
    for (i = 0; i < count && rc == 0; i++)
        rc = xe_handle_retain(device, handles[i]);
    *done = rc < 0 ? i - 1 : count;
    if (rc < 0) {
        for (i = 0; i < *done; i++)
            xe_handle_release(device, handles[i]);
    }
    xe_handles_unlock(device);
    return rc;
}

int xe_objects_release(struct xe_device *device, const uint64_t *handles, uint64_t count, uint64_t *done)
{
    int first = 0;

    *done = count;
    for (uint64_t i = 0; i < count; i++) {
        int rc;

        /* An object at a time: importers in other threads get their turn. */
        xe_handles_lock(device);
        rc = xe_handle_release(device, handles[i]);
        xe_handles_unlock(device);
        if (rc < 0 && first == 0) {
            first = rc;
            *done = i;
        }
    }
    return first;
}

int xe_column_release(struct xe_device *device, struct xe_column *column)
{
    return xe_objects_release(device, column->handles, column->count, &column->done);
}

int xe_objects_export(struct xe_device *device, const uint64_t *handles, uint64_t count, int32_t *fds, uint64_t *done)
{
    for (; *done < count; ++*done) {
        /* The first export of an object fixes the access mode of its dma-buf for ever: read and write. */
        struct drm_prime_handle arg = {.handle = (uint32_t)handles[*done], .flags = DRM_CLOEXEC | DRM_RDWR, .fd = -1};
        int rc = handles[*done] > UINT32_MAX ? -EBADF : xe_ioctl(device, DRM_IOCTL_PRIME_HANDLE_TO_FD, &arg);

        if (rc < 0)
            return rc;
        fds[*done] = arg.fd;
    }
    return 0;
}

int xe_objects_sizes(struct xe_device *device, const uint64_t *handles, uint64_t count, uint64_t *sizes, uint64_t *done)
{
    xe_handles_lock(device);
    for (*done = 0; *done < count; ++*done) {
        sizes[*done] = xe_handle_size(device, handles[*done]);
        if (sizes[*done] == 0)
            break;
    }
    xe_handles_unlock(device);
    return *done < count ? -EBADF : 0;
}

int xe_objects_import(struct xe_device *device, const int32_t *fds, uint64_t count, uint64_t *handles, uint64_t *done)
{
    for (; *done < count; ++*done) {
        struct drm_prime_handle arg = {.fd = fds[*done]};
        struct stat status = {0};
        int rc;

        xe_handles_lock(device);
        rc = xe_ioctl(device, DRM_IOCTL_PRIME_FD_TO_HANDLE, &arg);
        /* Only now is it known to be a dma-buf, whose fstat() gives the size and cannot be made to hang. */
        if (rc == 0 && fstat(fds[*done], &status) < 0)
            status.st_size = 0;
        if (rc == 0)
            rc = xe_handle_adopt(device, arg.handle, (uint64_t)status.st_size, XE_HANDLE_IMPORTED);
        xe_handles_unlock(device);
        if (rc < 0)
            return rc;
        handles[*done] = arg.handle;
    }
    return 0;
}
