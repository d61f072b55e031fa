#pragma once
/* The one seam between the xe backend and the outside world: four functions. The kernel's own, or the mock device's. */
#include <stddef.h>
#include <stdint.h>

struct xe_ops {
    /* open(2) of a render node. Returns a descriptor, or -1 with errno. */
    int (*open)(const char *path, int flags);
    /* close(2) of a descriptor that open() returned. */
    int (*close)(int fd);
    /* ioctl(2). Returns -1 with errno; EINTR is possible and is the caller's to retry. */
    int (*ioctl)(int fd, unsigned long request, void *argument);
    /* mmap(2) of a render node at an offset that GEM_MMAP_OFFSET gave, or of a dma-buf. Returns MAP_FAILED with errno.
     */
    void *(*mmap)(void *address, size_t length, int prot, int flags, int fd, int64_t offset);
};
