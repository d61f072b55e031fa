/* SYNCOBJ_EVENTFD: an eventfd that is written to when a point happens, or is put in. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec_handlers.h"
#include "store_dir.h"
#include "syncobj.h"

struct event {
    struct syncobj_watch watch;
    struct fence_cb cb;
    struct fence *fence;
    struct syncobj *syncobj; /* borrowed: it drops the watch before it dies */
    bool available;
    int fd;
};

static void event_free(struct event *event)
{
    close(event->fd);
    fence_put(event->fence);
    free(event);
}

static void event_fire(struct event *event)
{
    uint64_t one = 1;
    if (write(event->fd, &one, sizeof(one)) < 0) {
        /* Full: whoever waits for it is awake already. */
    }
    event_free(event);
}

static void event_signalled(struct fence *fence, struct fence_cb *cb)
{
    (void)fence;
    event_fire(container_of(cb, struct event, cb));
}

static void event_dropped(struct syncobj_watch *watch)
{
    event_free(container_of(watch, struct event, watch));
}

/* Fires, listens to the fence, or waits for one to be put in. The event is not the caller's any more. */
static void event_step(struct event *event)
{
    event->fence = syncobj_fence_or_watch(event->syncobj, &event->watch);
    if (!event->fence)
        return;
    if (event->available || !fence_add_callback(event->fence, &event->cb, event_signalled))
        event_fire(event);
}

static void event_installed(struct syncobj_watch *watch)
{
    event_step(container_of(watch, struct event, watch));
}

/* 0, -EBADF, -EINVAL. */
static int check_eventfd(int fd)
{
    char path[40], target[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n < 0)
        return -EBADF;
    target[n] = 0;
    return strcmp(target, "anon_inode:[eventfd]") ? -EINVAL : 0;
}

int syncobj_eventfd_ioctl(struct drm_file *file, void *data)
{
    struct drm_syncobj_eventfd *args = data;
    if (args->flags & ~(uint32_t)DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE || args->pad)
        return -EINVAL;
    struct syncobj *syncobj = syncobj_lookup(file, args->handle);
    if (!syncobj)
        return -ENOENT;
    int r = check_eventfd(args->fd);
    struct event *event = r ? NULL : calloc(1, sizeof(*event));
    if (!r && !event)
        r = -ENOMEM;
    if (!r && (event->fd = high_dup(args->fd)) < 0) {
        r = -errno;
        free(event);
    }
    if (!r) {
        event->watch.installed = event_installed;
        event->watch.dropped = event_dropped;
        event->syncobj = syncobj;
        event->watch.point = args->point;
        event->available = args->flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE;
        event_step(event);
    }
    syncobj_put(syncobj);
    return r;
}
