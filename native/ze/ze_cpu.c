#include "fds.h"
#include "slice.h"
#include "ze_space.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static int map_extent(struct ze_space *space, struct ze_cpu_map *map, char *at)
{
    int prot = PROT_READ | (map->writable ? PROT_WRITE : 0);
    uint64_t i = map->done, made = 0;
    int32_t fd = -1;
    void *view;
    int rc;

    fds_lock();
    rc = ze_objects_export(space, map->objects + i, 1, &fd, &made, &map->result);
    if (rc == 0) {
        view = mmap(at, map->sizes[i], prot, MAP_SHARED | MAP_FIXED, fd, (off_t)map->offsets[i]);
        rc = view == MAP_FAILED ? -errno : 0;
        close(fd);
    }
    fds_unlock();
    return rc;
}

int ze_cpu_map(struct ze_space *space, struct ze_cpu_map *map)
{
    int64_t until = now_ns() + SLICE_NS;
    uint64_t at = 0;
    int rc = 0;

    if (!map->address) {
        void *base;

        map->size = 0;
        for (uint64_t i = 0; i < map->count; i++)
            map->size += map->sizes[i];
        base = mmap(NULL, map->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            return -errno;
        map->address = (uint64_t)(uintptr_t)base;
    }
    for (uint64_t i = 0; i < map->done; i++)
        at += map->sizes[i];
    for (; map->done < map->count && rc == 0; at += map->sizes[map->done - 1]) {
        rc = map_extent(space, map, (char *)(uintptr_t)map->address + at);
        if (rc < 0)
            break;
        if (++map->done < map->count && now_ns() > until)
            return -EINTR;
    }
    if (rc < 0) {
        ze_cpu_unmap(map->address, map->size);
        map->address = 0;
    }
    return rc;
}

int ze_cpu_unmap(uint64_t address, uint64_t size)
{
    return munmap((void *)(uintptr_t)address, size) < 0 ? -errno : 0;
}
