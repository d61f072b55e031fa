#pragma once
/* What the C tests of the mock share. A failed check prints where and ends the program. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xe_mock.h"
#include "xe_uapi.h"

#define PAGE 4096ull
#define VRAM 2
#define SYSTEM 1
#define WB DRM_XE_GEM_CPU_CACHING_WB
#define WC DRM_XE_GEM_CPU_CACHING_WC
/* Of Battlemage: write-back and 1-way coherent, not coherent, compressed, reserved. */
#define PAT_WB 2
#define PAT_NONE 3
#define PAT_COMPRESSED 9
#define PAT_RESERVED 16

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_EQ(got, expected)                                                                                        \
    do {                                                                                                               \
        long long got_value = (long long)(got), expected_value = (long long)(expected);                                \
        if (got_value != expected_value) {                                                                             \
            fprintf(stderr, "%s:%d: %s is %lld, not %s (%lld)\n", __FILE__, __LINE__, #got, got_value, #expected,      \
                    expected_value);                                                                                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline int open_node(uint32_t index)
{
    int fd = xe_mock_open(index, false, O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static inline void close_node(int fd)
{
    CHECK_EQ(xe_mock_close(fd), 0);
}

/* 0 or -errno; the argument is a compound literal or a struct. */
#define CALL(fd, name, ...) xe_mock_ioctl(fd, DRM_IOCTL_##name, __VA_ARGS__)

static inline uint32_t make_vm(int fd, uint32_t flags)
{
    struct drm_xe_vm_create args = {.flags = flags};
    CHECK_EQ(CALL(fd, XE_VM_CREATE, &args), 0);
    return args.vm_id;
}

static inline void destroy_vm(int fd, uint32_t vm)
{
    struct drm_xe_vm_destroy args = {.vm_id = vm};
    CHECK_EQ(CALL(fd, XE_VM_DESTROY, &args), 0);
}

static inline uint32_t make_bo(int fd, uint64_t size, uint32_t placement, uint16_t caching, uint32_t vm)
{
    struct drm_xe_gem_create args = {.size = size, .placement = placement, .cpu_caching = caching, .vm_id = vm};
    CHECK_EQ(CALL(fd, XE_GEM_CREATE, &args), 0);
    return args.handle;
}

static inline int close_bo(int fd, uint32_t handle)
{
    struct drm_gem_close args = {.handle = handle};
    return CALL(fd, GEM_CLOSE, &args);
}

/* A descriptor or -errno. */
static inline int export_bo(int fd, uint32_t handle, uint32_t flags)
{
    struct drm_prime_handle args = {.handle = handle, .flags = flags};
    int r = CALL(fd, PRIME_HANDLE_TO_FD, &args);
    return r ? r : args.fd;
}

/* A handle (positive) or -errno. */
static inline int import_bo(int fd, int dma_buf)
{
    struct drm_prime_handle args = {.fd = dma_buf};
    int r = CALL(fd, PRIME_FD_TO_HANDLE, &args);
    return r ? r : (int)args.handle;
}

static inline int bind_op(int fd, uint32_t vm, struct drm_xe_vm_bind_op op)
{
    struct drm_xe_vm_bind args = {.vm_id = vm, .num_binds = 1, .bind = op};
    return CALL(fd, XE_VM_BIND, &args);
}

static inline int bind_array(int fd, uint32_t vm, const struct drm_xe_vm_bind_op *ops, uint32_t count)
{
    struct drm_xe_vm_bind args = {.vm_id = vm, .num_binds = count, .vector_of_binds = (uintptr_t)ops};
    if (count == 1)
        args.bind = ops[0];
    return CALL(fd, XE_VM_BIND, &args);
}

static inline int map_bo(int fd, uint32_t vm, uint32_t bo, uint64_t offset, uint64_t va, uint64_t size)
{
    return bind_op(
        fd, vm,
        (struct drm_xe_vm_bind_op){.obj = bo, .obj_offset = offset, .addr = va, .range = size, .pat_index = PAT_WB});
}

static inline int unmap(int fd, uint32_t vm, uint64_t va, uint64_t size)
{
    return bind_op(fd, vm, (struct drm_xe_vm_bind_op){.op = DRM_XE_VM_BIND_OP_UNMAP, .addr = va, .range = size});
}

static inline uint64_t mmap_offset(int fd, uint32_t bo)
{
    struct drm_xe_gem_mmap_offset args = {.handle = bo};
    CHECK_EQ(CALL(fd, XE_GEM_MMAP_OFFSET, &args), 0);
    return args.offset;
}

static inline void *map_cpu(int fd, uint32_t bo, uint64_t size)
{
    void *p = xe_mock_ops()->mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (int64_t)mmap_offset(fd, bo));
    CHECK(p != MAP_FAILED);
    return p;
}

static inline ino_t inode_of(int fd)
{
    struct stat st;
    CHECK(fstat(fd, &st) == 0);
    return st.st_ino;
}

static inline struct xe_mock_stats stats_of(uint32_t index)
{
    struct xe_mock_stats stats;
    CHECK_EQ(xe_mock_stats(index, &stats), 0);
    return stats;
}

static inline void check_nothing_left(uint32_t index)
{
    struct xe_mock_stats stats = stats_of(index);
    CHECK_EQ(stats.files, 0);
    CHECK_EQ(stats.objects, 0);
    CHECK_EQ(stats.handles, 0);
    CHECK_EQ(stats.vms, 0);
    CHECK_EQ(stats.mappings, 0);
    CHECK_EQ(stats.vram_used, 0);
    CHECK_EQ(stats.system_used, 0);
}

/* The child's exit code. */
static inline int wait_for(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status))
        fprintf(stderr, "child ended by signal %d\n", WTERMSIG(status));
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}
