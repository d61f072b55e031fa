/* Waiting for sync objects. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "exec_handlers.h"
#include "sync_watch.h"
#include "syncobj.h"

struct wait_entry {
    struct fence_cb cb;
    struct waiter *waiter;
    atomic_bool called; /* the last thing the callback touches */
    struct syncobj *syncobj;
    struct fence *fence;
    struct syncobj_watch watch;
    bool watching, listening, ready;
};

static void entry_signalled(struct fence *fence, struct fence_cb *cb)
{
    (void)fence;
    struct wait_entry *entry = container_of(cb, struct wait_entry, cb);
    waiter_kick(entry->waiter);
    atomic_store_explicit(&entry->called, true, memory_order_release);
}

/* Whether this one need not be waited for any more. */
static bool look(struct wait_entry *entry, bool available)
{
    if (entry->ready)
        return true;
    if (!entry->fence)
        entry->fence = syncobj_told(&entry->watch);
    if (!entry->fence)
        return false;
    if (!available && !entry->listening)
        entry->listening = fence_add_callback(entry->fence, &entry->cb, entry_signalled);
    entry->ready = available || syncobj_fence_is_over(entry->fence);
    return entry->ready;
}

/* How many are ready; *first is the first of them, untouched if there is none. */
static uint32_t look_at_all(struct wait_entry *entries, uint32_t count, bool available, uint32_t *first)
{
    uint32_t ready = 0;
    for (uint32_t i = 0; i < count; i++)
        if (look(&entries[i], available) && ready++ == 0)
            *first = i;
    return ready;
}

static void leave(struct wait_entry *entry)
{
    if (entry->watching)
        syncobj_unwatch(entry->syncobj, &entry->watch);
    if (entry->listening && !fence_remove_callback(entry->fence, &entry->cb))
        while (!atomic_load_explicit(&entry->called, memory_order_acquire))
            sched_yield();
    fence_put(entry->fence);
}

/* The kernel's first look: without a fence there is nothing to wait for, unless the caller waits for one, too. */
static int watch_missing(struct wait_entry *entries, uint32_t count, uint32_t flags)
{
    const uint32_t later = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE;
    for (uint32_t i = 0; i < count; i++) {
        entries[i].watch.waiter = entries[i].waiter;
        entries[i].fence = syncobj_fence_or_watch(entries[i].syncobj, &entries[i].watch);
        entries[i].watching = !entries[i].fence;
        if (entries[i].watching && !(flags & later))
            return -EINVAL;
    }
    return 0;
}

static int wait_entries(struct wait_entry *entries, uint32_t count, uint32_t flags, int64_t deadline, uint32_t *first)
{
    bool all = flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL, available = flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE;
    struct waiter *waiter = entries[0].waiter;
    sync_watch_settle();
    int r = watch_missing(entries, count, flags);
    while (!r) {
        unsigned seen = waiter_seen(waiter);
        uint32_t ready = look_at_all(entries, count, available, first);
        if (all ? ready == count : ready > 0)
            return 0;
        r = deadline <= now_ns() ? -ETIME : waiter_wait(waiter, seen, deadline);
        if (r == -ETIME && deadline > now_ns())
            r = 0;
    }
    return r;
}

static int wait_syncobjs(struct syncobj **syncobjs, const uint64_t *points, uint32_t count, uint32_t flags,
                         int64_t deadline, uint32_t *first)
{
    struct waiter waiter = {0};
    struct wait_entry *entries = calloc(count, sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        entries[i].waiter = &waiter;
        entries[i].syncobj = syncobjs[i];
        entries[i].watch.point = points ? points[i] : 0;
    }
    int r = wait_entries(entries, count, flags, deadline, first);
    for (uint32_t i = 0; i < count; i++)
        leave(&entries[i]);
    free(entries);
    return r;
}

int syncobj_wait_ioctl(struct drm_file *file, void *data)
{
    struct drm_syncobj_wait *args = data;
    const uint32_t known =
        DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE;
    struct syncobj **syncobjs;
    uint32_t first = UINT32_MAX;
    if (args->flags & ~known)
        return -EINVAL;
    if (args->count_handles == 0)
        return 0;
    int r = syncobj_lookup_array(file, args->handles, args->count_handles, &syncobjs);
    if (r)
        return r;
    r = wait_syncobjs(syncobjs, NULL, args->count_handles, args->flags, args->timeout_nsec, &first);
    if (!r)
        args->first_signaled = first;
    syncobj_put_array(syncobjs, args->count_handles);
    return r;
}

int syncobj_timeline_wait_ioctl(struct drm_file *file, void *data)
{
    struct drm_syncobj_timeline_wait *args = data;
    const uint32_t known = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT |
                           DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE;
    struct syncobj **syncobjs;
    uint32_t first = UINT32_MAX;
    if (args->flags & ~known)
        return -EINVAL;
    if (args->count_handles == 0)
        return 0;
    int r = syncobj_lookup_array(file, args->handles, args->count_handles, &syncobjs);
    if (r)
        return r;
    uint64_t *points = calloc(args->count_handles, sizeof(*points));
    if (!points)
        r = -ENOMEM;
    else if (args->points)
        r = copy_from_user(points, args->points, args->count_handles * sizeof(*points));
    if (!r)
        r = wait_syncobjs(syncobjs, points, args->count_handles, args->flags, args->timeout_nsec, &first);
    if (!r)
        args->first_signaled = first;
    free(points);
    syncobj_put_array(syncobjs, args->count_handles);
    return r;
}
