#include "userptr.h"

#include <errno.h>

#include "self_maps.h"
#include "uaccess.h"

int userptr_check(uint64_t address, uint64_t size, bool writable)
{
    int saved = errno;
    int r = check_user_range(address, size, writable);
    if (!r && self_maps_object(address, size))
        r = -EFAULT;
    errno = saved;
    return r;
}
