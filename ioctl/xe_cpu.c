#include "xe_cpu.h"
#include "fds.h"
#include "xe_objects.h"
#include "slice.h"
#include "xe_uapi.h"
#include "xe_wc.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The DRM node maps an object from its very start only, and one that came from another device not
   at all (a touch is SIGBUS). A dma-buf descriptor maps anything, but it must be had for a moment. */
static uint64_t map_object(struct xe_device *device, uint64_t object, uint64_t offset, uint64_t size, bool whole,
                           uint64_t address, int prot, int *error)
{
    int flags = MAP_SHARED | (address ? MAP_FIXED : 0);
    uint64_t done = 0;
    uint64_t at = 0;
    int32_t fd;

    if (whole) {
        struct drm_xe_gem_mmap_offset arg = {.handle = (uint32_t)object};

        *error = xe_ioctl(device, DRM_IOCTL_XE_GEM_MMAP_OFFSET, &arg);
        if (*error < 0)
            return 0;
        return xe_mmap(device, address, size, prot, flags, xe_device_fd(device), arg.offset, error);
    }
    fds_lock();
    *error = xe_objects_export(device, &object, 1, &fd, &done);
    if (*error == 0) {
        at = xe_mmap(device, address, size, prot, flags, fd, offset, error);
        close(fd);
    }
    fds_unlock();
    return at;
}

static int object_flags(struct xe_device *device, uint64_t object, uint32_t refuse)
{
    int flags;

    xe_handles_lock(device);
    flags = xe_handle_flags(device, object);
    xe_handles_unlock(device);
    return flags >= 0 && (uint32_t)flags & refuse ? -ENXIO : flags;
}

static int reserve(struct xe_cpu_map *map)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t total = 0;
    void *at;

    for (uint64_t i = 0; i < map->count; i++) {
        map->done = i;
        if (map->offsets[i] % page || map->sizes[i] % page || map->sizes[i] == 0)
            return -EINVAL;
        if (__builtin_add_overflow(total, map->sizes[i], &total))
            return -ENOMEM;
    }
    map->done = 0;
    if (total == 0)
        return -EINVAL;
    at = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    map->address = (uint64_t)(uintptr_t)at;
    map->size = total;
    return 0;
}

int xe_cpu_map(struct xe_device *device, struct xe_cpu_map *map)
{
    int prot = PROT_READ | (map->writable ? PROT_WRITE : 0);
    int64_t until = now_ns() + SLICE_NS;
    uint64_t address;
    int rc = map->address ? 0 : reserve(map);

    if (rc < 0)
        return rc;
    address = map->address;
    for (uint64_t i = 0; i < map->done; i++)
        address += map->sizes[i];
    for (; map->done < map->count; ++map->done) {
        uint64_t i = map->done;
        int flags = object_flags(device, map->objects[i], map->refuse);
        bool whole = !(flags & XE_HANDLE_IMPORTED) && map->offsets[i] == 0;

        if (flags < 0)
            rc = flags;
        else
            map_object(device, map->objects[i], map->offsets[i], map->sizes[i], whole, address, prot, &rc);
        if (rc < 0) {
            xe_cpu_unmap(map->address, map->size);
            map->address = 0;
            return rc;
        }
        address += map->sizes[i];
        if (i + 1 < map->count && now_ns() > until) {
            ++map->done;
            return -EINTR;
        }
    }
    return 0;
}

int xe_cpu_unmap(uint64_t address, uint64_t size)
{
    return munmap((void *)(uintptr_t)address, size) < 0 ? -errno : 0;
}

/* The next bytes of one extent. */
static int copy_some(struct xe_device *device, struct xe_cpu_copy *copy)
{
    /* Bounds the time between two looks at the clock: 16 MiB take a second at the 16 MB/s of uncached reads. */
    enum { CHUNK = 16 << 20 };
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t i = copy->extent;
    uint64_t left = copy->sizes[i] - copy->inside;
    uint64_t size = left < CHUNK ? left : CHUNK;
    uint64_t start = copy->offsets[i] + copy->inside;
    int flags = object_flags(device, copy->objects[i], copy->refuse);
    bool whole = !(flags & XE_HANDLE_IMPORTED);
    uint64_t from, at;
    uint8_t *bytes;
    int rc;

    if (flags < 0)
        return flags;
    /* The DRM node maps from the object's start: what lies before costs address space only. */
    from = whole ? 0 : start & ~(page - 1);
    at = map_object(device, copy->objects[i], from, start + size - from, whole, 0,
                    copy->write ? PROT_READ | PROT_WRITE : PROT_READ, &rc);
    if (rc < 0)
        return rc;
    bytes = (uint8_t *)(uintptr_t)at + (start - from);
    if (copy->write)
        memcpy(bytes, copy->buffer + copy->position, size);
    else
        xe_read_wc(copy->buffer + copy->position, bytes, size);
    xe_cpu_unmap(at, start + size - from);
    copy->inside += size;
    copy->position += size;
    return 0;
}

int xe_cpu_copy(struct xe_device *device, struct xe_cpu_copy *copy)
{
    int64_t until = now_ns() + SLICE_NS;

    for (; copy->extent < copy->count; copy->extent++, copy->inside = 0) {
        while (copy->inside < copy->sizes[copy->extent]) {
            int rc = copy_some(device, copy);

            if (rc < 0)
                return rc;
            if (now_ns() > until)
                return -EINTR;
        }
    }
    return 0;
}
