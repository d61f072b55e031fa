/* Sync objects: their life and what is in them. */
#include "syncobj.h"

#include <errno.h>
#include <stdlib.h>

#include "exec_handlers.h"

pthread_mutex_t syncobj_lock = PTHREAD_MUTEX_INITIALIZER;

struct syncobj *syncobj_new(void)
{
    struct syncobj *syncobj = calloc(1, sizeof(*syncobj));
    if (syncobj)
        atomic_init(&syncobj->refs, 1);
    return syncobj;
}

struct syncobj *syncobj_get(struct syncobj *syncobj)
{
    atomic_fetch_add_explicit(&syncobj->refs, 1, memory_order_relaxed);
    return syncobj;
}

static void drop_fences(struct syncobj *syncobj)
{
    for (uint32_t i = 0; i < syncobj->num_points; i++)
        fence_put(syncobj->points[i].fence);
    syncobj->num_points = 0;
    syncobj->timeline = false;
    syncobj->last_number = syncobj->happened_number = 0;
    fence_put(syncobj->fence);
    syncobj->fence = NULL;
}

void syncobj_put(struct syncobj *syncobj)
{
    if (!syncobj || atomic_fetch_sub_explicit(&syncobj->refs, 1, memory_order_acq_rel) != 1)
        return;
    while (syncobj->watches) {
        struct syncobj_watch *watch = syncobj->watches;
        syncobj->watches = watch->next;
        watch->dropped(watch);
    }
    drop_fences(syncobj);
    free(syncobj->points);
    free(syncobj);
}

struct syncobj *syncobj_lookup(struct drm_file *file, uint32_t handle)
{
    pthread_mutex_lock(&file->lock);
    struct syncobj *syncobj = idr_find(&file->syncobjs, handle);
    if (syncobj)
        syncobj_get(syncobj);
    pthread_mutex_unlock(&file->lock);
    return syncobj;
}

int syncobj_lookup_array(struct drm_file *file, uint64_t user, uint32_t count, struct syncobj ***syncobjs)
{
    uint32_t *handles = calloc(count, sizeof(*handles));
    struct syncobj **found = calloc(count, sizeof(*found));
    int r = handles && found ? copy_from_user(handles, user, count * sizeof(*handles)) : -ENOMEM;
    for (uint32_t i = 0; i < count && !r; i++) {
        found[i] = syncobj_lookup(file, handles[i]);
        if (!found[i]) {
            r = -ENOENT;
            while (i)
                syncobj_put(found[--i]);
            break;
        }
    }
    free(handles);
    if (r)
        free(found);
    else
        *syncobjs = found;
    return r;
}

void syncobj_put_array(struct syncobj **syncobjs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        syncobj_put(syncobjs[i]);
    free(syncobjs);
}

void syncobj_file_close(struct drm_file *file)
{
    uint32_t id = 0;
    struct syncobj *syncobj;
    for (; (syncobj = idr_next(&file->syncobjs, &id)); id++)
        syncobj_put(syncobj);
    idr_destroy(&file->syncobjs);
}

/* Forgets the points at the front that have happened. syncobj_lock held. */
static void prune(struct syncobj *syncobj)
{
    uint32_t done = 0;
    while (done < syncobj->num_points && fence_is_signalled(syncobj->points[done].fence)) {
        syncobj->happened_number = syncobj->points[done].number;
        fence_put(syncobj->points[done++].fence);
    }
    syncobj->num_points -= done;
    for (uint32_t i = 0; i < syncobj->num_points && done; i++)
        syncobj->points[i] = syncobj->points[i + done];
}

/* syncobj_lock held. */
static struct fence *find_fence(struct syncobj *syncobj, uint64_t point)
{
    if (point == 0)
        return syncobj->fence ? fence_get(syncobj->fence) : NULL;
    if (!syncobj->timeline || point > syncobj->last_number)
        return NULL;
    prune(syncobj);
    if (point <= syncobj->happened_number)
        return fence_stub();
    uint32_t i = 0;
    while (i < syncobj->num_points && syncobj->points[i].number < point)
        i++;
    return i < syncobj->num_points ? fence_get(syncobj->points[i].fence) : fence_stub();
}

struct fence *syncobj_fence(struct syncobj *syncobj, uint64_t point)
{
    pthread_mutex_lock(&syncobj_lock);
    struct fence *fence = find_fence(syncobj, point);
    pthread_mutex_unlock(&syncobj_lock);
    return fence;
}

struct fence *syncobj_fence_or_watch(struct syncobj *syncobj, struct syncobj_watch *watch)
{
    pthread_mutex_lock(&syncobj_lock);
    struct fence *fence = find_fence(syncobj, watch->point);
    if (!fence) {
        watch->next = syncobj->watches;
        syncobj->watches = watch;
    }
    pthread_mutex_unlock(&syncobj_lock);
    return fence;
}

uint64_t syncobj_query(struct syncobj *syncobj, bool submitted)
{
    pthread_mutex_lock(&syncobj_lock);
    prune(syncobj);
    uint64_t number = submitted ? syncobj->last_number : syncobj->happened_number;
    pthread_mutex_unlock(&syncobj_lock);
    return number;
}

/* Tells those who wait for a fence to be put in. Takes syncobj_lock over, and releases it. */
static void tell_watches(struct syncobj *syncobj)
{
    struct syncobj_watch *called = NULL, **link = &syncobj->watches;
    while (*link) {
        struct syncobj_watch *watch = *link;
        if (watch->waiter) {
            if (!watch->fence)
                watch->fence = find_fence(syncobj, watch->point);
            waiter_kick(watch->waiter);
            link = &watch->next;
        } else {
            *link = watch->next;
            watch->next = called;
            called = watch;
        }
    }
    pthread_mutex_unlock(&syncobj_lock);
    while (called) {
        struct syncobj_watch *watch = called;
        called = watch->next;
        watch->installed(watch);
    }
}

static int install_binary(struct syncobj *syncobj, struct fence *fence)
{
    pthread_mutex_lock(&syncobj_lock);
    drop_fences(syncobj);
    syncobj->fence = fence_get(fence);
    tell_watches(syncobj);
    return 0;
}

/* Room for one more point. syncobj_lock held. */
static bool grow(struct syncobj *syncobj)
{
    if (syncobj->num_points < syncobj->max_points)
        return true;
    uint32_t max = syncobj->max_points ? syncobj->max_points * 2 : 8;
    struct syncobj_point *points = realloc(syncobj->points, max * sizeof(*points));
    if (!points)
        return false;
    syncobj->points = points;
    syncobj->max_points = max;
    return true;
}

int syncobj_install(struct syncobj *syncobj, uint64_t point, struct fence *fence)
{
    return point ? syncobj_add_point(syncobj, point, fence) : install_binary(syncobj, fence);
}

int syncobj_add_point(struct syncobj *syncobj, uint64_t point, struct fence *fence)
{
    for (;;) {
        /* A point has happened when its own fence and everything before it have. Joining takes locks: look again after.
         */
        struct fence *before = syncobj_fence(syncobj, 0);
        struct fence *both[] = {before, fence};
        struct fence *step = before && !fence_is_signalled(before) ? fence_join(both, 2) : fence_get(fence);
        if (!step) {
            fence_put(before);
            return -ENOMEM;
        }
        pthread_mutex_lock(&syncobj_lock);
        bool same = syncobj->fence == before, room = same && grow(syncobj);
        fence_put(before);
        if (!room) {
            pthread_mutex_unlock(&syncobj_lock);
            fence_put(step);
            if (!same)
                continue;
            return -ENOMEM;
        }
        /* Numbers never go back, whatever a program asks. */
        if (point > syncobj->last_number)
            syncobj->last_number = point;
        syncobj->points[syncobj->num_points++] =
            (struct syncobj_point){.number = syncobj->last_number, .fence = fence_get(step)};
        syncobj->timeline = true;
        fence_put(syncobj->fence);
        syncobj->fence = step;
        prune(syncobj);
        tell_watches(syncobj);
        return 0;
    }
}

void syncobj_clear(struct syncobj *syncobj)
{
    pthread_mutex_lock(&syncobj_lock);
    drop_fences(syncobj);
    pthread_mutex_unlock(&syncobj_lock);
}

struct fence *syncobj_told(struct syncobj_watch *watch)
{
    pthread_mutex_lock(&syncobj_lock);
    struct fence *fence = watch->fence ? fence_get(watch->fence) : NULL;
    pthread_mutex_unlock(&syncobj_lock);
    return fence;
}

void syncobj_unwatch(struct syncobj *syncobj, struct syncobj_watch *watch)
{
    pthread_mutex_lock(&syncobj_lock);
    struct syncobj_watch **link = &syncobj->watches;
    while (*link && *link != watch)
        link = &(*link)->next;
    if (*link)
        *link = watch->next;
    pthread_mutex_unlock(&syncobj_lock);
    fence_put(watch->fence);
    watch->fence = NULL;
}

int syncobj_add_handle(struct drm_file *file, struct syncobj *syncobj, uint32_t *handle)
{
    int error = 0;
    pthread_mutex_lock(&file->lock);
    *handle = idr_alloc(&file->syncobjs, syncobj, &error);
    pthread_mutex_unlock(&file->lock);
    return error;
}

int syncobj_create_ioctl(struct drm_file *file, void *data)
{
    struct drm_syncobj_create *args = data;
    if (args->flags & ~(uint32_t)DRM_SYNCOBJ_CREATE_SIGNALED)
        return -EINVAL;
    struct syncobj *syncobj = syncobj_new();
    if (!syncobj)
        return -ENOMEM;
    if (args->flags & DRM_SYNCOBJ_CREATE_SIGNALED)
        syncobj->fence = fence_stub();
    int r = syncobj_add_handle(file, syncobj, &args->handle);
    if (r)
        syncobj_put(syncobj);
    return r;
}

int syncobj_destroy_ioctl(struct drm_file *file, void *data)
{
    struct drm_syncobj_destroy *args = data;
    if (args->pad)
        return -EINVAL;
    pthread_mutex_lock(&file->lock);
    struct syncobj *syncobj = idr_remove(&file->syncobjs, args->handle);
    pthread_mutex_unlock(&file->lock);
    syncobj_put(syncobj);
    return syncobj ? 0 : -EINVAL;
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&syncobj_lock);
}

static void fork_release(void)
{
    pthread_mutex_unlock(&syncobj_lock);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(fork_prepare, fork_release, fork_release);
}
