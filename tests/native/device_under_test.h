#pragma once
/* Short calls of a mock device for tests in C: what they return is 0 or -errno. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "xe_mock.h"
#include "xe_uapi.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)
#define CHECK_EQUAL(left, right)                                                                                       \
    do {                                                                                                               \
        long long left_value = (long long)(left), right_value = (long long)(right);                                    \
        if (left_value != right_value) {                                                                               \
            fprintf(stderr, "%s:%d: %s is %lld (0x%llx), %s is %lld (0x%llx)\n", __FILE__, __LINE__, #left,            \
                    left_value, left_value, #right, right_value, right_value);                                         \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define PAT_WB 2 /* coherent on the profiles used here */
#define SECOND INT64_C(1000000000)

/* An ioctl with its argument written in place; evaluates to 0 or -errno. */
#define CALL(fd, name, type, ...) xe_mock_ioctl(fd, DRM_IOCTL_##name, &(struct type){__VA_ARGS__})

static inline int64_t test_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static inline int test_open(uint32_t index)
{
    int fd = xe_mock_open(index, false, O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static inline void test_close(int fd)
{
    CHECK_EQUAL(xe_mock_ops()->close(fd), 0);
}

static inline uint32_t test_vm(int fd, uint32_t flags)
{
    struct drm_xe_vm_create create = {.flags = flags};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_VM_CREATE, &create), 0);
    return create.vm_id;
}

static inline uint32_t test_bo(int fd, uint64_t size)
{
    struct drm_xe_gem_create create = {.size = size, .placement = 1, .cpu_caching = DRM_XE_GEM_CPU_CACHING_WB};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_GEM_CREATE, &create), 0);
    return create.handle;
}

static inline void *test_map(int fd, uint32_t bo, uint64_t size)
{
    struct drm_xe_gem_mmap_offset offset = {.handle = bo};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_GEM_MMAP_OFFSET, &offset), 0);
    void *map = xe_mock_ops()->mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (int64_t)offset.offset);
    CHECK(map != MAP_FAILED);
    return map;
}

static inline int test_bind(int fd, uint32_t vm, uint32_t bo, uint64_t address, uint64_t size, uint32_t flags)
{
    return CALL(fd, XE_VM_BIND, drm_xe_vm_bind, .vm_id = vm, .num_binds = 1,
                .bind = {.obj = bo,
                         .range = size,
                         .addr = address,
                         .op = DRM_XE_VM_BIND_OP_MAP,
                         .flags = flags,
                         .pat_index = PAT_WB});
}

static inline int test_unbind(int fd, uint32_t vm, uint64_t address, uint64_t size, uint32_t syncobj)
{
    struct drm_xe_sync sync = {.type = DRM_XE_SYNC_TYPE_SYNCOBJ, .flags = DRM_XE_SYNC_FLAG_SIGNAL, .handle = syncobj};
    return CALL(fd, XE_VM_BIND, drm_xe_vm_bind, .vm_id = vm, .num_binds = 1,
                .bind = {.range = size, .addr = address, .op = DRM_XE_VM_BIND_OP_UNMAP, .pat_index = PAT_WB},
                .num_syncs = syncobj ? 1 : 0, .syncs = (uint64_t)&sync);
}

static inline int test_queue_of(int fd, uint32_t vm, uint16_t engine_class, uint32_t *queue)
{
    struct drm_xe_engine_class_instance engine = {.engine_class = engine_class};
    struct drm_xe_exec_queue_create create = {
        .width = 1, .num_placements = 1, .vm_id = vm, .instances = (uint64_t)&engine};
    int r = xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC_QUEUE_CREATE, &create);
    *queue = create.exec_queue_id;
    return r;
}

static inline uint32_t test_queue(int fd, uint32_t vm)
{
    uint32_t queue;
    CHECK_EQUAL(test_queue_of(fd, vm, DRM_XE_ENGINE_CLASS_COPY, &queue), 0);
    return queue;
}

static inline int test_destroy_queue(int fd, uint32_t queue)
{
    return CALL(fd, XE_EXEC_QUEUE_DESTROY, drm_xe_exec_queue_destroy, .exec_queue_id = queue);
}

static inline int test_exec(int fd, uint32_t queue, uint64_t address, const struct drm_xe_sync *syncs, uint32_t count)
{
    return CALL(fd, XE_EXEC, drm_xe_exec, .exec_queue_id = queue, .num_syncs = count, .syncs = (uint64_t)syncs,
                .address = address, .num_batch_buffer = 1);
}

static inline uint32_t test_syncobj(int fd, uint32_t flags)
{
    struct drm_syncobj_create create = {.flags = flags};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_SYNCOBJ_CREATE, &create), 0);
    return create.handle;
}

/* `timeout` in ns from now. */
static inline int test_wait(int fd, uint32_t syncobj, int64_t timeout)
{
    return CALL(fd, SYNCOBJ_WAIT, drm_syncobj_wait, .handles = (uint64_t)&syncobj, .count_handles = 1,
                .timeout_nsec = test_now() + timeout);
}

static inline int test_wait_point(int fd, uint32_t syncobj, uint64_t point, uint32_t flags, int64_t timeout)
{
    return CALL(fd, SYNCOBJ_TIMELINE_WAIT, drm_syncobj_timeline_wait, .handles = (uint64_t)&syncobj,
                .points = (uint64_t)&point, .count_handles = 1, .flags = flags, .timeout_nsec = test_now() + timeout);
}

static inline int test_wait_user_fence(int fd, uint64_t *address, uint64_t value, uint32_t queue, int64_t timeout)
{
    return CALL(fd, XE_WAIT_USER_FENCE, drm_xe_wait_user_fence, .addr = (uint64_t)address,
                .op = DRM_XE_UFENCE_WAIT_OP_EQ, .value = value, .mask = UINT64_MAX, .timeout = timeout,
                .exec_queue_id = queue);
}

static inline uint64_t test_banned(int fd, uint32_t queue)
{
    struct drm_xe_exec_queue_get_property get = {.exec_queue_id = queue};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC_QUEUE_GET_PROPERTY, &get), 0);
    return get.value;
}

#define SIGNAL_SYNCOBJ(syncobj)                                                                                        \
    (struct drm_xe_sync)                                                                                               \
    {                                                                                                                  \
        .type = DRM_XE_SYNC_TYPE_SYNCOBJ, .flags = DRM_XE_SYNC_FLAG_SIGNAL, .handle = syncobj                          \
    }
#define WAIT_SYNCOBJ(syncobj)                                                                                          \
    (struct drm_xe_sync)                                                                                               \
    {                                                                                                                  \
        .type = DRM_XE_SYNC_TYPE_SYNCOBJ, .handle = syncobj                                                            \
    }
#define SIGNAL_POINT(syncobj, point)                                                                                   \
    (struct drm_xe_sync)                                                                                               \
    {                                                                                                                  \
        .type = DRM_XE_SYNC_TYPE_TIMELINE_SYNCOBJ, .flags = DRM_XE_SYNC_FLAG_SIGNAL, .handle = syncobj,                \
        .timeline_value = point                                                                                        \
    }
#define USER_FENCE(address, value)                                                                                     \
    (struct drm_xe_sync)                                                                                               \
    {                                                                                                                  \
        .type = DRM_XE_SYNC_TYPE_USER_FENCE, .flags = DRM_XE_SYNC_FLAG_SIGNAL, .addr = address,                        \
        .timeline_value = value                                                                                        \
    }

#define LOW(address) (uint32_t)(address)
#define HIGH(address) (uint32_t)((uint64_t)(address) >> 32)
#define ADDRESS(address) LOW(address), HIGH(address)
#define MI(opcode, length) ((uint32_t)(opcode) << 23 | (uint32_t)(length))
#define BLT(opcode, length) (2u << 29 | (uint32_t)(opcode) << 22 | (uint32_t)(length))
#define BATCH_END MI(0x0a, 0)
#define STORE_DWORD(address, value) MI(0x20, 2), ADDRESS(address), value
/* Waits until the dword at the address is at least the value. */
#define WAIT_DWORD(address, value) MI(0x1c, 3) | 1u << 15 | 1u << 12, value, ADDRESS(address), 0
#define WRITE_BATCH(at, ...)                                                                                           \
    do {                                                                                                               \
        const uint32_t batch_dwords[] = {__VA_ARGS__};                                                                 \
        memcpy(at, batch_dwords, sizeof(batch_dwords));                                                                \
    } while (0)
