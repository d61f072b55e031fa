/* Calls on descriptors: what is a DRM file, what is a dma-buf, what belongs to the device itself. */
#include "dmabuf.h"
#include "files.h"
#include "internal.h"
#include "real.h"
#include "sw_sync.h"
#include "sync_file.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- close, dup ---- */

/* Programs that close every number they can think of (daemons, subprocess) must not close what the device needs. */
int wrap_close(int fd)
{
    if (internal_fd(fd)) {
        errno = EBADF;
        return -1;
    }
    struct open_file *file = file_forget(fd);
    int result = REAL(close)(fd);
    file_put(file);
    return result;
}

int wrap_close_range(unsigned int first, unsigned int last, int flags)
{
    if (first > last || !internal_any() || (flags & ~CLOSE_RANGE_UNSHARE)) {
        if (first <= last && !(flags & CLOSE_RANGE_CLOEXEC))
            file_forget_range(first, last);
        return REAL(close_range)(first, last, flags);
    }
    /* The descriptors leave the table before they are closed, as in close(). */
    file_forget_range(first, last);
    int result = 0;
    for (unsigned int start = first;;) {
        unsigned int kept = internal_next(start, last);
        if (kept > start || kept == UINT_MAX)
            result |= REAL(close_range)(start, kept == UINT_MAX ? last : kept - 1, flags);
        if (kept == UINT_MAX || kept == last)
            return result;
        start = kept + 1;
        flags = 0;
    }
}

void wrap_closefrom(int first)
{
    if (wrap_close_range(first < 0 ? 0 : (unsigned int)first, UINT_MAX, 0) < 0)
        REAL(closefrom)(first);
}

int wrap_dup(int fd)
{
    int copy = REAL(dup)(fd);
    if (copy >= 0)
        file_duplicated(fd, copy);
    return copy;
}

static int replaced(int from, int to)
{
    if (to >= 0 && from != to)
        file_duplicated(from, to);
    return to;
}

int wrap_dup2(int from, int to)
{
    if (internal_fd(to)) {
        errno = EBUSY;
        return -1;
    }
    return replaced(from, REAL(dup2)(from, to));
}

int wrap_dup3(int from, int to, int flags)
{
    if (internal_fd(to)) {
        errno = EBUSY;
        return -1;
    }
    return replaced(from, REAL(dup3)(from, to, flags));
}

static int control(int fd, int command, int result)
{
    if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC))
        file_duplicated(fd, result);
    return result;
}

int wrap_fcntl(int fd, int command, void *argument)
{
    return control(fd, command, REAL(fcntl)(fd, command, argument));
}

int wrap_fcntl64(int fd, int command, void *argument)
{
    return control(fd, command, REAL(fcntl64)(fd, command, argument));
}

/* ---- the device ---- */

#define IOC_TYPE(request) ((request) >> 8 & 0xff)

static int answer(int result)
{
    if (result >= 0)
        return result;
    errno = -result;
    return -1;
}

/* An open of the tree's file of software timelines. */
static bool is_sw_sync(int fd)
{
    struct target target;
    struct stat have, want;
    target_at(&target, AT_FDCWD, "/sys/kernel/debug/sync/sw_sync");
    return target.redirected && REAL(fstat)(fd, &have) == 0 &&
           REAL(fstatat)(target.dirfd, target.path, &want, 0) == 0 && have.st_ino == want.st_ino &&
           have.st_dev == want.st_dev;
}

int wrap_ioctl(int fd, unsigned long request, void *argument)
{
    unsigned int type = IOC_TYPE(request);
    if (!tree_active() || (type != 'd' && type != 'b' && type != '>' && type != 'W'))
        return REAL(ioctl)(fd, request, argument);
    if (type == '>' && sync_file_is(fd))
        return answer(sync_file_ioctl(fd, request, argument));
    if (type == 'W' && is_sw_sync(fd))
        return answer(sw_sync_ioctl(fd, request, argument));
    if (type == '>' || type == 'W')
        return REAL(ioctl)(fd, request, argument);
    int saved = errno;
    struct open_file *file = file_get(fd);
    if (file) {
        errno = saved;
        int result = answer(drm_ioctl(file_drm(file), request, argument));
        file_put(file);
        return result;
    }
    if (errno)
        return -1;
    errno = saved;
    if (fd_is_dma_buf(fd))
        return answer(dma_buf_ioctl(fd, request, argument));
    return REAL(ioctl)(fd, request, argument);
}

/* What a GPU job still uses as a userptr stays until the job is done. */
static void program_memory_goes(const void *address, size_t length)
{
    if (length && tree_active() && !in_vfork_child())
        program_memory_changes((uintptr_t)address, length);
}

int wrap_munmap(void *address, size_t length)
{
    program_memory_goes(address, length);
    return REAL(munmap)(address, length);
}

void *wrap_mremap(void *old, size_t old_size, size_t new_size, int flags, void *address)
{
    program_memory_goes(old, old_size);
    if (flags & MREMAP_FIXED)
        program_memory_goes(address, new_size);
    return REAL(mremap)(old, old_size, new_size, flags, address);
}

void *wrap_mmap(void *address, size_t length, int prot, int flags, int fd, off_t offset)
{
    if (flags & MAP_FIXED)
        program_memory_goes(address, length);
    if (fd < 0 || (flags & MAP_ANONYMOUS) || !tree_active())
        return REAL(mmap)(address, length, prot, flags, fd, offset);
    int saved = errno;
    struct open_file *file = file_get(fd);
    if (file) {
        errno = saved;
        void *memory = drm_mmap(file_drm(file), address, length, prot, flags, offset);
        file_put(file);
        return memory;
    }
    if (errno)
        return MAP_FAILED;
    errno = saved;
    if (fd_is_dma_buf(fd))
        return dma_buf_mmap(fd, address, length, prot, flags, offset);
    return REAL(mmap)(address, length, prot, flags, fd, offset);
}

void *wrap_mmap64(void *address, size_t length, int prot, int flags, int fd, off_t offset)
{
    return wrap_mmap(address, length, prot, flags, fd, offset);
}

/* A dma-buf knows only its start and its end, and has no position. */
off_t wrap_lseek(int fd, off_t offset, int whence)
{
    if (!tree_active() || !fd_is_dma_buf(fd))
        return REAL(lseek)(fd, offset, whence);
    struct stat st;
    if (offset != 0 || (whence != SEEK_SET && whence != SEEK_END)) {
        errno = EINVAL;
        return -1;
    }
    if (whence == SEEK_SET)
        return 0;
    return REAL(fstat)(fd, &st) < 0 ? -1 : st.st_size;
}

off_t wrap_lseek64(int fd, off_t offset, int whence)
{
    return wrap_lseek(fd, offset, whence);
}

/* Kernels without Yama refuse PR_SET_PTRACER, and Intel's driver then shares memory over a socket instead of by
 * pidfd_getfd. $ZE_IPC_MOCK_PTRACER=1 makes it succeed, so that both ways can be tested anywhere. */
int wrap_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    int result = REAL(prctl)(option, a, b, c, d);
    const char *fake;
    if (option == PR_SET_PTRACER && result < 0 && (fake = getenv("ZE_IPC_MOCK_PTRACER")) && !strcmp(fake, "1"))
        return 0;
    return result;
}

__attribute__((constructor)) static void start(void)
{
    if (tree_active())
        in_vfork_child(); /* remember which process this is before anybody can vfork() */
}
