#include "internal.h"

#include <stdatomic.h>

#define BITS 64u
#define LIMIT (1u << 16) /* descriptors above it are not protected */

static _Atomic(unsigned long) bitmap[LIMIT / BITS];
static atomic_int count;

void internal_add(int fd)
{
    unsigned long bit = 1ul << ((unsigned int)fd % BITS);
    if (fd >= 0 && (unsigned int)fd < LIMIT && !(atomic_fetch_or(&bitmap[(unsigned int)fd / BITS], bit) & bit))
        atomic_fetch_add(&count, 1);
}

void internal_remove(int fd)
{
    unsigned long bit = 1ul << ((unsigned int)fd % BITS);
    if (internal_fd(fd) && (atomic_fetch_and(&bitmap[(unsigned int)fd / BITS], ~bit) & bit))
        atomic_fetch_sub(&count, 1);
}

bool internal_fd(int fd)
{
    if (fd < 0 || (unsigned int)fd >= LIMIT || !internal_any())
        return false;
    return atomic_load_explicit(&bitmap[(unsigned int)fd / BITS], memory_order_relaxed) >> ((unsigned int)fd % BITS) &
           1;
}

bool internal_any(void)
{
    return atomic_load_explicit(&count, memory_order_relaxed) > 0;
}

unsigned int internal_next(unsigned int first, unsigned int last)
{
    for (unsigned int fd = first; fd <= last && fd < LIMIT; fd++) {
        if (!bitmap[fd / BITS])
            fd |= BITS - 1;
        else if (internal_fd((int)fd))
            return fd;
    }
    return UINT_MAX;
}
