/* The traced side: marks, and a device whose ioctls are marked. */
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tracer.h"
#include "xe_ops.h"

static const struct xe_ops *below;

long mark(int what, unsigned long value)
{
    return syscall(MARK_CALL, (long)what, value);
}

int trace_me(void)
{
    if (ptrace(PTRACE_TRACEME, 0, 0, 0))
        return -errno;
    return raise(SIGSTOP);
}

static int marked_ioctl(int fd, unsigned long request, void *argument)
{
    long told = mark(MARK_ENTER, request);
    if (told > GO_ON) {
        errno = (int)(told - GO_ON);
        return -1;
    }
    int result = below->ioctl(fd, request, argument);
    int error = errno;
    mark(MARK_LEAVE, request);
    errno = error;
    return result;
}

const void *marked_ops(const void *ops)
{
    static struct xe_ops marked;
    below = ops;
    marked = *below;
    marked.ioctl = marked_ioctl;
    return &marked;
}
