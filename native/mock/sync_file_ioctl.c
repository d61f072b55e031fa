/* Ioctls of a sync_file. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "sync_file.h"
#include "syncobj.h"

static int merge(int fd, struct sync_merge_data *args)
{
    int r;
    if (args->flags || args->pad)
        return -EINVAL;
    struct fence *fences[2] = {sync_file_import(fd, &r)};
    if (!fences[0])
        return r;
    fences[1] = sync_file_import(args->fd2, &r);
    if (!fences[1]) {
        fence_put(fences[0]);
        return r == -EINVAL ? -ENOENT : r;
    }
    struct fence *both = fence_join(fences, 2);
    r = both ? sync_file_export(both) : -ENOMEM;
    fence_put(both);
    fence_put(fences[0]);
    fence_put(fences[1]);
    if (r < 0)
        return r;
    args->fence = r;
    return 0;
}

/* One fence, whatever it was joined from. */
static int file_info(int fd, struct sync_file_info *args)
{
    int r;
    if (args->flags || args->pad)
        return -EINVAL;
    struct fence *fence = sync_file_import(fd, &r);
    if (!fence)
        return r;
    bool signalled = fence_is_signalled(fence);
    args->status = !signalled ? 0 : fence->error ? fence->error : 1;
    strncpy(args->name, "mock-xe", sizeof(args->name));
    struct sync_fence_info info = {.obj_name = "mock-xe", .driver_name = "xe", .status = args->status};
    info.timestamp_ns = signalled ? (uint64_t)fence->signalled_at : 0;
    fence_put(fence);
    if (args->num_fences && copy_to_user(args->sync_fence_info, &info, sizeof(info)))
        return -EFAULT;
    args->num_fences = 1;
    return 0;
}

int sync_file_ioctl(int fd, unsigned long request, void *argument)
{
    union {
        struct sync_merge_data merge;
        struct sync_file_info info;
    } args;
    int r;
    if (!sync_file_is(fd))
        return -ENOTTY;
    switch (request) {
    case SYNC_IOC_MERGE:
        if (copy_from_user(&args.merge, (uint64_t)argument, sizeof(args.merge)))
            return -EFAULT;
        r = merge(fd, &args.merge);
        if (!r && copy_to_user((uint64_t)argument, &args.merge, sizeof(args.merge))) {
            close(args.merge.fence);
            r = -EFAULT;
        }
        return r;
    case SYNC_IOC_FILE_INFO:
        if (copy_from_user(&args.info, (uint64_t)argument, sizeof(args.info)))
            return -EFAULT;
        r = file_info(fd, &args.info);
        return !r && copy_to_user((uint64_t)argument, &args.info, sizeof(args.info)) ? -EFAULT : r;
    case SYNC_IOC_SET_DEADLINE: /* a hint */
        return 0;
    default:
        return -ENOTTY;
    }
}
