/* RESET, SIGNAL, TIMELINE_SIGNAL, QUERY, TRANSFER: what programs do to sync objects by hand. */
#include <errno.h>
#include <stdlib.h>

#include "exec_handlers.h"
#include "sync_watch.h"
#include "syncobj.h"

/* TRANSFER waits so long for the source's point to be put in. */
#define TRANSFER_SUBMIT_NS INT64_C(5000000000)

static int for_each(struct drm_file *file, struct drm_syncobj_array *args, int (*call)(struct syncobj *))
{
    struct syncobj **syncobjs;
    if (args->pad || args->count_handles == 0)
        return -EINVAL;
    int r = syncobj_lookup_array(file, args->handles, args->count_handles, &syncobjs);
    if (r)
        return r;
    for (uint32_t i = 0; i < args->count_handles && !r; i++)
        r = call(syncobjs[i]);
    syncobj_put_array(syncobjs, args->count_handles);
    return r;
}

static int reset(struct syncobj *syncobj)
{
    syncobj_clear(syncobj);
    return 0;
}

static int signal_binary(struct syncobj *syncobj)
{
    struct fence *stub = fence_stub();
    int r = syncobj_install(syncobj, 0, stub);
    fence_put(stub);
    return r;
}

int syncobj_reset_ioctl(struct drm_file *file, void *data)
{
    return for_each(file, data, reset);
}

int syncobj_signal_ioctl(struct drm_file *file, void *data)
{
    return for_each(file, data, signal_binary);
}

int syncobj_timeline_signal_ioctl(struct drm_file *file, void *data)
{
    struct drm_syncobj_timeline_array *args = data;
    struct syncobj **syncobjs;
    if (args->flags || args->count_handles == 0)
        return -EINVAL;
    int r = syncobj_lookup_array(file, args->handles, args->count_handles, &syncobjs);
    if (r)
        return r;
    uint64_t *points = calloc(args->count_handles, sizeof(*points));
    if (!points)
        r = -ENOMEM;
    else if (args->points)
        r = copy_from_user(points, args->points, args->count_handles * sizeof(*points));
    struct fence *stub = fence_stub();
    for (uint32_t i = 0; i < args->count_handles && !r; i++)
        r = syncobj_add_point(syncobjs[i], points[i], stub);
    fence_put(stub);
    free(points);
    syncobj_put_array(syncobjs, args->count_handles);
    return r;
}

int syncobj_query_ioctl(struct drm_file *file, void *data)
{
    struct drm_syncobj_timeline_array *args = data;
    struct syncobj **syncobjs;
    if (args->flags & ~(uint32_t)DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED || args->count_handles == 0)
        return -EINVAL;
    int r = syncobj_lookup_array(file, args->handles, args->count_handles, &syncobjs);
    if (r)
        return r;
    sync_watch_settle();
    for (uint32_t i = 0; i < args->count_handles && !r; i++) {
        uint64_t point = syncobj_query(syncobjs[i], args->flags & DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED);
        r = copy_to_user(args->points + i * sizeof(point), &point, sizeof(point));
    }
    syncobj_put_array(syncobjs, args->count_handles);
    return r;
}

/* The fence of a point, waiting for it to be put in if asked; NULL with *error. */
static struct fence *find_fence(struct syncobj *syncobj, uint64_t point, bool wait, int *error)
{
    int64_t deadline = now_ns() + TRANSFER_SUBMIT_NS;
    struct waiter waiter = {0};
    struct syncobj_watch watch = {.waiter = &waiter, .point = point};
    *error = -EINVAL;
    if (!wait)
        return syncobj_fence(syncobj, point);
    struct fence *fence = syncobj_fence_or_watch(syncobj, &watch);
    if (fence)
        return fence;
    do {
        unsigned seen = waiter_seen(&waiter);
        fence = syncobj_told(&watch);
        *error = fence ? 0 : waiter_wait(&waiter, seen, deadline);
    } while (!fence && !*error);
    syncobj_unwatch(syncobj, &watch);
    return fence;
}

int syncobj_transfer_ioctl(struct drm_file *file, void *data)
{
    struct drm_syncobj_transfer *args = data;
    if (args->pad)
        return -EINVAL;
    struct syncobj *to = syncobj_lookup(file, args->dst_handle);
    if (!to)
        return -ENOENT;
    struct syncobj *from = NULL;
    struct fence *fence = NULL;
    int r = 0;
    if (!(from = syncobj_lookup(file, args->src_handle)))
        r = -ENOENT;
    else if (args->flags & ~(uint32_t)DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT)
        r = -EINVAL;
    else
        fence = find_fence(from, args->src_point, args->flags, &r);
    if (fence)
        r = syncobj_install(to, args->dst_point, fence);
    fence_put(fence);
    syncobj_put(from);
    syncobj_put(to);
    return r;
}
