/* What every ioctl has in common: the order of the checks is that of the DRM core. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

#define IOC_NR(request) ((request) & 0xff)
#define IOC_TYPE(request) ((request) >> 8 & 0xff)
#define IOC_SIZE(request) ((request) >> 16 & 0x3fff)
#define IOC_IN UINT32_C(0x40000000)
#define IOC_OUT UINT32_C(0x80000000)
#define LARGEST_ARGUMENT 256

void warn_unknown_request(unsigned long request)
{
    /* A bit for each number, so that a program that probes in a loop gets one line. */
    static atomic_ullong warned[4];
    unsigned nr = IOC_NR(request);
    if (atomic_fetch_or(&warned[nr / 64], UINT64_C(1) << nr % 64) >> nr % 64 & 1)
        return;
    char line[96];
    int length =
        snprintf(line, sizeof(line), "ze_ipc mock: unknown ioctl 0x%08lx: EINVAL, as the kernel says\n", request);
    if (write(STDERR_FILENO, line, (size_t)length) < 0)
        return;
}

/* Core ioctls of mode setting and of drivers of old: no client of ours calls them, but a render node says EACCES. */
static bool is_card_only(unsigned nr)
{
    static const unsigned char ranges[][2] = {
        {0x06, 0x06}, {0x10, 0x10}, {0x12, 0x13}, {0x27, 0x28}, {0x2c, 0x2c}, {0x3a, 0x3c},
        {0x3f, 0x3f}, {0xa1, 0xb1}, {0xb5, 0xbe}, {0xc6, 0xc9}, {0xce, 0xce}, {0xd0, 0xd0},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (nr >= ranges[i][0] && nr <= ranges[i][1])
            return true;
    return false;
}

const char *xe_mock_ioctl_name(uint32_t nr)
{
    return nr < XE_MOCK_MAX_IOCTLS ? ioctl_table[nr].name : NULL;
}

/* data has room for size bytes: the larger of the caller's argument and the row's. */
static int call(struct drm_file *file, const struct ioctl_row *row, void *data, uint64_t user, uint32_t in_size,
                uint32_t out_size, uint32_t size)
{
    if (copy_from_user(data, user, in_size))
        return -EFAULT;
    memset((char *)data + in_size, 0, size - in_size);
    if (row->flags & IOCTL_ROOT && geteuid() != 0)
        return -EACCES;
    if (file->render && !(row->flags & IOCTL_RENDER))
        return -EACCES;
    int r = device_fault(file->dev, IOC_NR(row->request));
    if (r == 0)
        r = row->handler(file, data);
    if (copy_to_user(user, data, out_size))
        return -EFAULT;
    return r;
}

static int call_large(struct drm_file *file, const struct ioctl_row *row, void *argument, uint32_t in_size,
                      uint32_t out_size, uint32_t size)
{
    void *data = malloc(size);
    int r = data ? call(file, row, data, (uint64_t)argument, in_size, out_size, size) : -ENOMEM;
    free(data);
    return r;
}

int drm_ioctl(struct drm_file *file, unsigned long request, void *argument)
{
    uint32_t user = (uint32_t)request;
    if (IOC_TYPE(user) != DRM_IOCTL_BASE)
        return -ENOTTY;
    const struct ioctl_row *row = &ioctl_table[IOC_NR(user)];
    if (!row->handler) {
        if (file->render && is_card_only(IOC_NR(user)))
            return -EACCES;
        warn_unknown_request(request);
        return -EINVAL;
    }

    uint32_t user_size = IOC_SIZE(user), row_size = IOC_SIZE(row->request);
    uint32_t direction = user & row->request;
    uint32_t in_size = direction & IOC_IN ? user_size : 0;
    uint32_t out_size = direction & IOC_OUT ? user_size : 0;
    uint32_t size = user_size > row_size ? user_size : row_size;
    if (size > LARGEST_ARGUMENT)
        return call_large(file, row, argument, in_size, out_size, size);
    uint64_t data[LARGEST_ARGUMENT / 8];
    return call(file, row, data, (uint64_t)argument, in_size, out_size, size);
}
