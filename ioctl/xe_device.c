#include "xe_device.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static int kernel_open(const char *path, int flags)
{
    return open(path, flags);
}

static int kernel_ioctl(int fd, unsigned long request, void *argument)
{
    return ioctl(fd, request, argument);
}

static void *kernel_mmap(void *address, size_t length, int prot, int flags, int fd, int64_t offset)
{
    return mmap(address, length, prot, flags, fd, (off_t)offset);
}

const struct xe_ops *xe_kernel_ops(void)
{
    static const struct xe_ops ops = {.open = kernel_open, .close = close, .ioctl = kernel_ioctl, .mmap = kernel_mmap};
    return &ops;
}
