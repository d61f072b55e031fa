#pragma once
/* Short calls of the sync object ioctls, and a job whose end the test decides. */
#include "device_under_test.h"

#define TIMELINE_FD DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_TIMELINE
#define SYNC_FILE DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE
enum {
    ALL = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL,
    FOR_SUBMIT = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
    AVAILABLE = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE,
    BATCH = 0x100000,
    DATA = 0x108000,
    SIZE = 0x10000,
};

static int fd;

static inline int array_call(unsigned long request, const uint32_t *handles, uint32_t count)
{
    return xe_mock_ioctl(fd, request,
                         &(struct drm_syncobj_array){.handles = (uint64_t)handles, .count_handles = count});
}

static inline int timeline_call(unsigned long request, uint32_t handle, uint64_t *point, uint32_t flags)
{
    struct drm_syncobj_timeline_array args = {
        .handles = (uint64_t)&handle, .points = (uint64_t)point, .count_handles = 1, .flags = flags};
    return xe_mock_ioctl(fd, request, &args);
}

static inline int signal_point(uint32_t handle, uint64_t point)
{
    return timeline_call(DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL, handle, &point, 0);
}

static inline uint64_t query(uint32_t handle, uint32_t flags)
{
    uint64_t point = UINT64_MAX;
    CHECK_EQUAL(timeline_call(DRM_IOCTL_SYNCOBJ_QUERY, handle, &point, flags), 0);
    return point;
}

static inline int destroy(uint32_t handle)
{
    return CALL(fd, SYNCOBJ_DESTROY, drm_syncobj_destroy, .handle = handle);
}

static inline int to_fd(uint32_t handle, uint32_t flags, uint64_t point, int *out)
{
    struct drm_syncobj_handle args = {.handle = handle, .flags = flags, .point = point, .fd = -1};
    int r = xe_mock_ioctl(fd, DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD, &args);
    *out = args.fd;
    return r;
}

static inline int from_fd(int in, uint32_t flags, uint64_t point, uint32_t *handle)
{
    struct drm_syncobj_handle args = {.handle = *handle, .flags = flags, .point = point, .fd = in};
    int r = xe_mock_ioctl(fd, DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE, &args);
    *handle = args.handle;
    return r;
}

/* A job that ends when data[0] is 1: what real fences come from. */
static uint32_t queue;
static uint32_t *data;

static inline void set_up_job(void)
{
    uint32_t vm = test_vm(fd, 0), bo = test_bo(fd, SIZE);
    unsigned char *map = test_map(fd, bo, SIZE);
    data = (uint32_t *)(void *)(map + (DATA - BATCH));
    WRITE_BATCH(map, WAIT_DWORD(DATA, 1), BATCH_END);
    CHECK_EQUAL(test_bind(fd, vm, bo, BATCH, SIZE, 0), 0);
    queue = test_queue(fd, vm);
}

static inline void start_job(const struct drm_xe_sync *syncs, uint32_t count)
{
    __atomic_store_n(data, 0, __ATOMIC_RELEASE);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, syncs, count), 0);
}

static inline void end_job(void)
{
    __atomic_store_n(data, 1, __ATOMIC_RELEASE);
}
