#include "xe_mock.h"

#include <errno.h>
#include <stddef.h>

static int mock_open(const char *path, int flags)
{
    (void)path;
    (void)flags;
    errno = ENODEV;
    return -1;
}

const struct xe_ops *xe_mock_ops(void)
{
    static const struct xe_ops ops = {.open = mock_open};
    return &ops;
}
