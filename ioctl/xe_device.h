#pragma once
/* An open render node and its table of GEM handle references. Every function returns 0 or -errno. */
#include "xe_ops.h"

#include <stdbool.h>

struct xe_device;
struct xe_fence;

/* The kernel's own open, close, ioctl and mmap. */
const struct xe_ops *xe_kernel_ops(void);

/* Opens the node; NULL with *error = -errno. */
struct xe_device *xe_device_open(const struct xe_ops *ops, const char *path, int *error);

/* Closes the node, and with it every handle, VM and queue. No other thread may be inside a call on this device. */
void xe_device_close(struct xe_device *device);

int xe_device_fd(const struct xe_device *device);

/* ioctl(2), repeated on EINTR. */
int xe_ioctl(struct xe_device *device, unsigned long request, void *argument);

/* The same, once: -EINTR is the caller's. */
int xe_ioctl_once(struct xe_device *device, unsigned long request, void *argument);

/* mmap(2) through the device's operations. Returns the address, or 0 with *error = -errno. */
uint64_t xe_mmap(struct xe_device *device, uint64_t address, uint64_t size, int prot, int flags, int fd,
                 uint64_t offset, int *error);

/*
 * The handle table. PRIME import gives the handle this file already has for an object, with no reference of its own,
 * so a handle imported twice and closed once is gone for both. The table counts; the lock makes "import and count"
 * one step against "count down and close".
 */
enum {
    /* The object came in through a dma-buf and was not made here. */
    XE_HANDLE_IMPORTED = 1,
    /* Part of it may lie where the CPU cannot reach. */
    XE_HANDLE_INVISIBLE = 2,
};

void xe_handles_lock(struct xe_device *device);
void xe_handles_unlock(struct xe_device *device);

/* One reference more, for a handle the kernel has just returned. Called with the lock held. */
int xe_handle_adopt(struct xe_device *device, uint32_t handle, uint64_t size, uint32_t flags);

/* The flags of a handle that has references, or -EBADF. Called with the lock held. */
int xe_handle_flags(struct xe_device *device, uint64_t handle);

/* The size in bytes of a handle that has references, or 0. Called with the lock held. */
uint64_t xe_handle_size(struct xe_device *device, uint64_t handle);

/* One reference more; -EBADF if there is none yet. Called with the lock held. */
int xe_handle_retain(struct xe_device *device, uint64_t handle);

/* One reference less; the last one closes the handle. Called with the lock held. */
int xe_handle_release(struct xe_device *device, uint64_t handle);

/* Where xe_fence.c keeps the fences that the kernel may still write to. Called with the lock held. */
struct xe_fence **xe_device_parked_fences(struct xe_device *device);

/* How many distinct handles have references. */
uint64_t xe_handles_live(struct xe_device *device);
