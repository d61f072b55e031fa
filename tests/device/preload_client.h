/* What the verbs of the client share. */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xe_uapi.h"

#define NODE "/dev/dri/renderD128"
#define SIZE 65536u

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __func__, __LINE__, #condition, errno);                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define FAILS(code, call) CHECK(((errno = 0), (call) == -1 && errno == (code)))

static inline int open_node(void)
{
    int fd = open(NODE, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static inline uint32_t create(int fd)
{
    struct drm_xe_gem_create args = {.size = SIZE, .placement = 1, .cpu_caching = DRM_XE_GEM_CPU_CACHING_WB};
    CHECK(ioctl(fd, DRM_IOCTL_XE_GEM_CREATE, &args) == 0);
    return args.handle;
}

static inline int close_handle(int fd, uint32_t handle)
{
    struct drm_gem_close args = {.handle = handle};
    return ioctl(fd, DRM_IOCTL_GEM_CLOSE, &args);
}

static inline uint64_t offset_of(int fd, uint32_t handle)
{
    struct drm_xe_gem_mmap_offset args = {.handle = handle};
    CHECK(ioctl(fd, DRM_IOCTL_XE_GEM_MMAP_OFFSET, &args) == 0);
    return args.offset;
}

static inline char *map(int fd, uint32_t handle)
{
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset_of(fd, handle));
    CHECK(memory != MAP_FAILED);
    return memory;
}

static inline int export(int fd, uint32_t handle)
{
    struct drm_prime_handle args = {.handle = handle, .flags = DRM_CLOEXEC | DRM_RDWR};
    CHECK(ioctl(fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &args) == 0);
    return args.fd;
}

static inline uint32_t import(int fd, int buffer)
{
    struct drm_prime_handle args = {.fd = buffer};
    CHECK(ioctl(fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &args) == 0);
    return args.handle;
}

static inline void wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) != child)
        CHECK(errno == EINTR);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* preload_stress.c */
void threads(void);
void storm(void);
void userptr(void);
