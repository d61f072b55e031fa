#include "sync_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "store_dir.h"
#include "sync_watch.h"
#include "syncobj.h"

/* Prefix, 32 digits that nobody else has, "/" and the number of the timeline's point, 0 for other fences. */
#define NAME_SIZE 80
static const char fence_prefix[] = "ze_ipc/sync_file/", syncobj_prefix[] = "ze_ipc/syncobj/";

/* What a sync_file carries when it has signalled. */
struct record {
    int64_t signalled_at;
    int32_t error;
    uint32_t zero;
};

/* A promise of this process: our end of a sync_file or of a syncobj descriptor. */
struct promise {
    struct promise *next;
    char name[NAME_SIZE];
    int fd;
    struct fence *fence;
    struct fence_cb cb;
    struct syncobj *syncobj;
    struct sync_watch watch;
};

/* A leaf; a fork takes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct promise *promises;

/* The abstract address of a descriptor without its leading zero byte; "" if it has none. */
static void name_of(int fd, char name[NAME_SIZE])
{
    struct sockaddr_un address = {0};
    socklen_t size = sizeof(address) - 1;
    name[0] = 0;
    if (getsockname(fd, (struct sockaddr *)&address, &size) || address.sun_family != AF_UNIX || address.sun_path[0] ||
        size <= offsetof(struct sockaddr_un, sun_path) + 1 || size > offsetof(struct sockaddr_un, sun_path) + NAME_SIZE)
        return;
    memcpy(name, address.sun_path + 1, size - offsetof(struct sockaddr_un, sun_path) - 1);
    name[size - offsetof(struct sockaddr_un, sun_path) - 1] = 0;
}

static bool has_prefix(const char *name, const char *prefix)
{
    return !strncmp(name, prefix, strlen(prefix));
}

/* Their end is returned, ours is in the promise, whose name both know. -errno. */
static int make_pair(const char *prefix, uint64_t number, struct promise *promise)
{
    uint64_t unique[2];
    int fds[2];
    if (getrandom(unique, sizeof(unique), 0) != sizeof(unique))
        return -ENOMEM;
    int length = snprintf(promise->name, sizeof(promise->name), "%s%016llx%016llx/%llx", prefix,
                          (unsigned long long)unique[0], (unsigned long long)unique[1], (unsigned long long)number);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
        return -errno;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, promise->name, (size_t)length);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(fds[0], (struct sockaddr *)&address, size)) {
        int error = -errno;
        close(fds[0]);
        close(fds[1]);
        return error;
    }
    promise->fd = high_dup(fds[1]);
    if (promise->fd < 0)
        promise->fd = fds[1];
    else
        close(fds[1]);
    return fds[0];
}

static void add(struct promise *promise)
{
    pthread_mutex_lock(&lock);
    promise->next = promises;
    promises = promise;
    pthread_mutex_unlock(&lock);
}

/* False if a fork made it none of ours. */
static bool take(struct promise *promise)
{
    pthread_mutex_lock(&lock);
    struct promise **link = &promises;
    while (*link && *link != promise)
        link = &(*link)->next;
    bool found = *link;
    if (found)
        *link = promise->next;
    pthread_mutex_unlock(&lock);
    return found;
}

static void keep(int fd, struct fence *fence)
{
    const struct record record = {.signalled_at = fence->signalled_at, .error = fence->error};
    send(fd, &record, sizeof(record), MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void promise_signalled(struct fence *fence, struct fence_cb *cb)
{
    struct promise *promise = container_of(cb, struct promise, cb);
    if (take(promise))
        keep(promise->fd, fence);
    fence_put(promise->fence);
    free(promise);
}

int sync_file_export(struct fence *fence)
{
    struct promise *promise = calloc(1, sizeof(*promise));
    if (!promise)
        return -ENOMEM;
    int fd = make_pair(fence_prefix, fence->point ? fence->point->number : 0, promise);
    if (fd < 0) {
        free(promise);
        return fd;
    }
    promise->fence = fence_get(fence);
    add(promise);
    if (!fence_add_callback(fence, &promise->cb, promise_signalled))
        promise_signalled(fence, &promise->cb);
    return fd;
}

/* Whether it has signalled, and how. A peer that is gone without a word was killed. */
static bool peek(int fd, struct record *record)
{
    ssize_t n = recv(fd, record, sizeof(*record), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n != sizeof(*record))
        *record = (struct record){.signalled_at = now_ns(), .error = -ECANCELED};
    return true;
}

bool sync_file_is(int fd)
{
    char name[NAME_SIZE];
    name_of(fd, name);
    return has_prefix(name, fence_prefix);
}

/* A fence of another process, as one of this. */
struct remote {
    struct sync_watch watch;
    struct fence *fence;
};

static void remote_ready(struct sync_watch *watch, int fd)
{
    struct remote *remote = container_of(watch, struct remote, watch);
    struct record record = {0};
    peek(fd, &record);
    fence_signal(remote->fence, record.error);
    fence_put(remote->fence);
    free(remote);
}

static struct fence *import_remote(int fd, int *error)
{
    struct record record;
    if (peek(fd, &record) && !record.error)
        return fence_stub();
    struct remote *remote = calloc(1, sizeof(*remote));
    struct fence *fence = fence_new();
    *error = -ENOMEM;
    if (!remote || !fence)
        goto fail;
    remote->watch.fd = high_dup(fd);
    if (remote->watch.fd < 0) {
        *error = -errno;
        goto fail;
    }
    remote->watch.ready = remote_ready;
    remote->fence = fence_get(fence);
    *error = sync_watch_add(&remote->watch);
    if (!*error)
        return fence;
    close(remote->watch.fd);
    fence_put(fence);
fail:
    free(remote);
    fence_put(fence);
    return NULL;
}

static struct promise *find(const char *name)
{
    struct promise *promise = promises;
    while (promise && strcmp(promise->name, name))
        promise = promise->next;
    return promise;
}

struct fence *sync_file_import(int fd, int *error)
{
    char name[NAME_SIZE];
    name_of(fd, name);
    *error = -EINVAL;
    if (!has_prefix(name, fence_prefix))
        return NULL;
    pthread_mutex_lock(&lock);
    struct promise *promise = find(name);
    struct fence *fence = promise ? fence_get(promise->fence) : NULL;
    pthread_mutex_unlock(&lock);
    if (fence)
        return fence;
    fence = import_remote(fd, error);
    /* Has it signalled, so has all before it. If not, another process does not know what has: a guess is nothing. */
    uint64_t number = strtoull(strrchr(name, '/') + 1, NULL, 16);
    if (!fence || !number)
        return fence;
    struct fence *point = timeline_add(NULL, fence, number);
    fence_put(fence);
    if (!point)
        *error = -ENOMEM;
    return point;
}

static void all_closed(struct sync_watch *watch, int fd)
{
    (void)fd;
    struct promise *promise = container_of(watch, struct promise, watch);
    if (take(promise))
        syncobj_put(promise->syncobj);
    free(promise);
}

int syncobj_export(struct syncobj *syncobj)
{
    struct promise *promise = calloc(1, sizeof(*promise));
    if (!promise)
        return -ENOMEM;
    int fd = make_pair(syncobj_prefix, 0, promise);
    if (fd < 0) {
        free(promise);
        return fd;
    }
    promise->syncobj = syncobj_get(syncobj);
    promise->watch = (struct sync_watch){.fd = promise->fd, .ready = all_closed};
    add(promise);
    int r = sync_watch_add(&promise->watch);
    if (!r)
        return fd;
    take(promise);
    close(promise->fd);
    close(fd);
    syncobj_put(syncobj);
    free(promise);
    return r;
}

struct syncobj *syncobj_import(int fd)
{
    char name[NAME_SIZE];
    name_of(fd, name);
    if (!has_prefix(name, syncobj_prefix))
        return NULL;
    pthread_mutex_lock(&lock);
    struct promise *promise = find(name);
    struct syncobj *syncobj = promise ? syncobj_get(promise->syncobj) : NULL;
    pthread_mutex_unlock(&lock);
    if (!syncobj)
        fprintf(stderr, "mock xe: a syncobj descriptor of another process: its fences cannot be shared\n");
    return syncobj;
}

void sync_file_fork_child(void)
{
    for (struct promise *promise = promises; promise; promise = promise->next)
        if (promise->fence)
            close(promise->fd); /* the watch closes the others */
    promises = NULL;
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

static void fork_release(void)
{
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(fork_prepare, fork_release, fork_release);
}
