/* The importing process of the yardstick. */
#include "yardstick.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void wait_fence(const struct device *device, uint64_t *fence, uint64_t value)
{
    struct drm_xe_wait_user_fence wait = {.addr = (uint64_t)(uintptr_t)fence,
                                          .op = DRM_XE_UFENCE_WAIT_OP_EQ,
                                          .value = value,
                                          .mask = UINT64_MAX,
                                          .timeout = 10000000000};

    device_ioctl(device, DRM_IOCTL_XE_WAIT_USER_FENCE, &wait, "WAIT_USER_FENCE");
}

static bool submit(const struct device *device, struct drm_xe_vm_bind *bind)
{
    static _Alignas(8) uint64_t fence;
    struct drm_xe_sync sync = {.type = DRM_XE_SYNC_TYPE_USER_FENCE,
                               .flags = DRM_XE_SYNC_FLAG_SIGNAL,
                               .addr = (uint64_t)(uintptr_t)&fence,
                               .timeline_value = ++fence + 1};

    bind->num_syncs = 1;
    bind->syncs = (uint64_t)(uintptr_t)&sync;
    while (device->ops->ioctl(device->fd, DRM_IOCTL_XE_VM_BIND, bind) < 0) {
        if (errno == ENOBUFS && bind->num_binds > 1)
            return false;
        if (errno != EINTR)
            fail("VM_BIND");
    }
    wait_fence(device, &fence, sync.timeline_value);
    return true;
}

static uint64_t bind_all(const struct device *device, const struct extent *extents, const uint32_t *handles,
                         uint64_t count)
{
    struct drm_xe_vm_bind_op *ops = malloc(count * sizeof(*ops));
    uint64_t address = VA_BASE, calls = 0;

    if (!ops)
        fail("malloc");
    for (uint64_t i = 0; i < count; i++) {
        ops[i] = (struct drm_xe_vm_bind_op){.obj = handles[i],
                                            .pat_index = device->pat,
                                            .obj_offset = extents[i].offset,
                                            .range = extents[i].size,
                                            .addr = address,
                                            .op = DRM_XE_VM_BIND_OP_MAP};
        address += extents[i].size;
    }
    for (uint64_t done = 0, step = count; done < count; calls++) {
        uint64_t n = count - done < step ? count - done : step;
        struct drm_xe_vm_bind bind = {.vm_id = device->vm, .num_binds = (uint32_t)n};

        if (n == 1)
            bind.bind = ops[done];
        else
            bind.vector_of_binds = (uint64_t)(uintptr_t)&ops[done];
        if (submit(device, &bind))
            done += n;
        else
            step = n / 2;
    }
    free(ops);
    return calls;
}

static void view_all(const struct device *device, const uint32_t *handles, uint64_t count, uint64_t size)
{
    char *view = mmap(NULL, count * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (view == MAP_FAILED)
        fail("mmap");
    for (uint64_t i = 0; i < count; i++) {
        struct drm_xe_gem_mmap_offset offset = {.handle = handles[i]};

        device_ioctl(device, DRM_IOCTL_XE_GEM_MMAP_OFFSET, &offset, "GEM_MMAP_OFFSET");
        if (device->ops->mmap(view + i * size, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, device->fd,
                              (int64_t)offset.offset) == MAP_FAILED)
            fail("mmap of an object");
    }
    if (munmap(view, count * size) < 0)
        fail("munmap");
}

static void undo(const struct device *device, const uint32_t *handles, uint64_t count, uint64_t size)
{
    struct drm_xe_vm_bind bind = {.vm_id = device->vm,
                                  .num_binds = 1,
                                  .bind = {.addr = VA_BASE, .range = count * size, .op = DRM_XE_VM_BIND_OP_UNMAP}};
    uint64_t step = count;

    for (uint64_t done = 0; done < count;) {
        uint64_t n = count - done < step ? count - done : step;

        bind.bind.addr = VA_BASE + done * size;
        bind.bind.range = n * size;
        if (device->ops->ioctl(device->fd, DRM_IOCTL_XE_VM_BIND, &bind) == 0)
            done += n;
        else if ((errno == ENOMEM || errno == ENOBUFS) && n > 1)
            step = n / 2;
        else if (errno != EINTR)
            fail("VM_BIND(UNMAP)");
    }
    for (uint64_t i = 0; i < count; i++) {
        struct drm_gem_close close_args = {.handle = handles[i]};

        device_ioctl(device, DRM_IOCTL_GEM_CLOSE, &close_args, "GEM_CLOSE");
    }
}

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        fail("connect");
    return fd;
}

static struct extent *receive_manifest(int fd, uint64_t *objects)
{
    static char first[sizeof(struct reply) + FIRST_PART];
    const struct request request = {{0}};
    struct reply reply;
    ssize_t got;
    char *manifest;
    size_t at;

    send_all(fd, &request, sizeof(request));
    got = recv(fd, first, sizeof(first), 0);
    if (got < (ssize_t)sizeof(reply))
        fail("recv");
    memcpy(&reply, first, sizeof(reply));
    at = (size_t)got - sizeof(reply);
    manifest = malloc(reply.manifest_size);
    if (!manifest)
        fail("malloc");
    memcpy(manifest, first + sizeof(reply), at);
    while (at < reply.manifest_size) {
        got = recv(fd, manifest + at, reply.manifest_size - at, 0);
        if (got <= 0)
            fail("recv");
        at += (size_t)got;
    }
    *objects = reply.objects;
    return (struct extent *)(void *)manifest;
}

static struct times open_range(const struct device *device, const char *path, uint64_t object_size, uint32_t view)
{
    const uint32_t opened = 0;
    struct times times = {0};
    uint64_t count, begin = now(), start = begin;
    int fd = dial(path);

    times.connect = now() - begin;
    begin = now();
    struct extent *extents = receive_manifest(fd, &count);
    uint32_t *handles = malloc(count * sizeof(*handles));
    times.manifest = now() - begin;
    if (!handles)
        fail("malloc");
    receive_objects(device, fd, extents, count, handles, &times);
    begin = now();
    times.bind_calls = bind_all(device, extents, handles, count);
    times.bind = now() - begin;
    send_all(fd, &opened, sizeof(opened));
    close(fd);
    times.open = now() - start;
    if (view) {
        begin = now();
        view_all(device, handles, count, object_size);
        times.view = now() - begin;
    }
    undo(device, handles, count, object_size);
    free(handles);
    free(extents);
    return times;
}

void run_importer(const struct device *device)
{
    char line[160], path[100];

    while (fgets(line, sizeof(line), stdin)) {
        uint64_t size;
        uint32_t view;

        if (sscanf(line, "open %99s %" SCNu64 " %" SCNu32, path, &size, &view) != 3) {
            fprintf(stderr, "yardstick: no such command: %s", line);
            return;
        }
        struct times times = open_range(device, path, size, view);
        const uint64_t numbers[] = {times.connect, times.manifest, times.receive, times.import,
                                    times.bind,    times.view,     times.open,    times.bind_calls};

        for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
            printf("%s%" PRIu64, i ? " " : "", numbers[i]);
        putchar('\n');
        fflush(stdout);
    }
}
