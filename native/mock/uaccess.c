#include "uaccess.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE UINT64_C(4096)
#define USER_END (UINT64_C(1) << 47)
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* The first page is never mapped, and the probes below would take NULL for "no argument". */
static bool in_user_space(uint64_t address, uint64_t size)
{
    return address >= PAGE && address < USER_END && size <= USER_END - address;
}

/* rt_sigprocmask reads its set before it looks at the (invalid) command: EFAULT or EINVAL, and nothing else happens. A
   tenth of what process_vm_readv costs, and it needs no permission. */
static bool can_read(uint64_t address)
{
    return syscall(SYS_rt_sigprocmask, -1, address & ~UINT64_C(7), NULL, 8) == 0 || errno != EFAULT;
}

static bool all_readable(uint64_t address, uint64_t size)
{
    for (uint64_t page = address & ~(PAGE - 1); page < address + size; page += PAGE) {
        if (!can_read(page))
            return false;
    }
    return true;
}

int copy_from_user(void *to, uint64_t from, size_t size)
{
    if (size == 0)
        return 0;
    int saved = errno;
    bool good = in_user_space(from, size) && all_readable(from, size);
    errno = saved;
    if (!good)
        return -EFAULT;
    memcpy(to, (const void *)from, size);
    return 0;
}

/* Asks the kernel to write the signal mask there: for memory that is overwritten in the next moment. */
static bool clobber(uint64_t address)
{
    return syscall(SYS_rt_sigprocmask, 0, NULL, address, 8) == 0;
}

static int write_slowly(uint64_t to, const void *from, size_t size)
{
    struct iovec local = {(void *)from, size}, remote = {(void *)to, size};
    ssize_t done = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
    return done == (ssize_t)size ? 0 : -EFAULT;
}

int copy_to_user(uint64_t to, const void *from, size_t size)
{
    if (size == 0)
        return 0;
    if (!in_user_space(to, size))
        return -EFAULT;
    int saved = errno, r = 0;
    const char *bytes = from;
    while (size && !r) {
        size_t piece = PAGE - to % PAGE;
        if (piece > size)
            piece = size;
        if (piece < 8)
            r = check_user_range(to, piece, 1) ? write_slowly(to, bytes, piece) : (memcpy((void *)to, bytes, piece), 0);
        else if (clobber(to))
            memcpy((void *)to, bytes, piece);
        else
            r = -EFAULT;
        to += piece;
        bytes += piece;
        size -= piece;
    }
    errno = saved;
    return r;
}

int load_user_u64(uint64_t from, uint64_t *value)
{
    int saved = errno;
    bool good = in_user_space(from, 8) && can_read(from);
    errno = saved;
    if (!good)
        return -EFAULT;
    *value = __atomic_load_n((const uint64_t *)from, __ATOMIC_SEQ_CST);
    return 0;
}

int store_user_u64(uint64_t to, uint64_t value)
{
    if (check_user_range(to, 8, 1)) /* or memory of a device, that cannot be populated */
        return in_user_space(to, 8) ? write_slowly(to, &value, 8) : -EFAULT;
    __atomic_store_n((uint64_t *)to, value, __ATOMIC_SEQ_CST);
    return 0;
}

int check_user_range(uint64_t address, uint64_t size, int writable)
{
    if (size == 0)
        return 0;
    if (!in_user_space(address, size))
        return -EFAULT;
    int saved = errno, r = 0;
    uint64_t first = address & ~(PAGE - 1), length = ((address + size + PAGE - 1) & ~(PAGE - 1)) - first;
    int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (madvise((void *)first, length, advice)) {
        if (errno == EINVAL && writable && madvise((void *)first, length, MADV_POPULATE_READ) == 0)
            r = -EPERM;
        else if (errno == EINVAL && all_readable(first, length))
            r = writable ? -EPERM : 0; /* a kernel before 5.14 cannot tell: unwritable is the safe answer */
        else
            r = -EFAULT;
    }
    errno = saved;
    return r;
}
