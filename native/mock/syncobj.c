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

void syncobj_put(struct syncobj *syncobj)
{
    if (!syncobj || atomic_fetch_sub_explicit(&syncobj->refs, 1, memory_order_acq_rel) != 1)
        return;
    while (syncobj->watches) {
        struct syncobj_watch *watch = syncobj->watches;
        syncobj->watches = watch->next;
        watch->dropped(watch);
    }
    fence_put(syncobj->fence);
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

struct fence *syncobj_fence(struct syncobj *syncobj, uint64_t point)
{
    pthread_mutex_lock(&syncobj_lock);
    struct fence *fence = timeline_find(syncobj->fence, point);
    pthread_mutex_unlock(&syncobj_lock);
    return fence;
}

struct fence *syncobj_fence_or_watch(struct syncobj *syncobj, struct syncobj_watch *watch)
{
    pthread_mutex_lock(&syncobj_lock);
    struct fence *fence = timeline_find(syncobj->fence, watch->point);
    if (!fence) {
        watch->next = syncobj->watches;
        syncobj->watches = watch;
    }
    pthread_mutex_unlock(&syncobj_lock);
    return fence;
}

bool syncobj_fence_is_over(struct fence *fence)
{
    pthread_mutex_lock(&syncobj_lock);
    bool over = timeline_is_over(fence);
    pthread_mutex_unlock(&syncobj_lock);
    return over;
}

uint64_t syncobj_query(struct syncobj *syncobj, bool submitted)
{
    pthread_mutex_lock(&syncobj_lock);
    const struct fence_point *point = syncobj->fence ? syncobj->fence->point : NULL;
    uint64_t number = !point ? 0 : submitted ? point->number : timeline_happened(syncobj->fence);
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
                watch->fence = timeline_find(syncobj->fence, watch->point);
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
    fence_put(syncobj->fence);
    syncobj->fence = fence_get(fence);
    tell_watches(syncobj);
    return 0;
}

int syncobj_install(struct syncobj *syncobj, uint64_t point, struct fence *fence)
{
    return point ? syncobj_add_point(syncobj, point, fence) : install_binary(syncobj, fence);
}

int syncobj_add_point(struct syncobj *syncobj, uint64_t point, struct fence *fence)
{
    for (;;) {
        /* Making a point takes locks: look again after. */
        struct fence *before = syncobj_fence(syncobj, 0), *last = timeline_add(before, fence, point);
        if (!last) {
            fence_put(before);
            return -ENOMEM;
        }
        pthread_mutex_lock(&syncobj_lock);
        bool same = syncobj->fence == before;
        fence_put(before);
        if (!same) {
            pthread_mutex_unlock(&syncobj_lock);
            fence_put(last);
            continue;
        }
        fence_put(syncobj->fence);
        syncobj->fence = last;
        timeline_before(last->point); /* or what has happened would pile up behind one that is pending */
        tell_watches(syncobj);
        return 0;
    }
}

void syncobj_clear(struct syncobj *syncobj)
{
    pthread_mutex_lock(&syncobj_lock);
    fence_put(syncobj->fence);
    syncobj->fence = NULL;
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
