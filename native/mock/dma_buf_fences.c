#include "dma_buf_fences.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "queue.h"
#include "store_dir.h"
#include "sync_file.h"
#include "syncobj.h"

/* Bytes that stand for fences: from here on, one each, chosen at random. */
#define WRITES_AT (INT64_C(1) << 62)
#define READS_AT (INT64_C(1) << 61)
#define BYTES (INT64_C(1) << 48)

struct pending {
    struct pending *next;
    dev_t dev;
    ino_t ino;
    struct fence *fence;
    struct fence_cb cb;
    int64_t byte;
    int lock_fd; /* holds the lock; -1: other processes do not see it */
};

struct fence_list {
    struct fence **fences;
    uint32_t count, max;
};

/* A leaf; a fork takes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pending *all_pending;

static bool is_write(int64_t byte)
{
    return byte >= WRITES_AT;
}

/* A new open file description of the same file, so that its locks are its own. */
static int open_again(int fd)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    int high = again < 0 ? -1 : high_dup(again);
    if (high < 0)
        return again;
    close(again);
    return high;
}

static bool append(struct fence_list *list, struct fence *fence)
{
    if (list->count == list->max) {
        uint32_t max = list->max ? list->max * 2 : 8;
        struct fence **fences = realloc(list->fences, max * sizeof(*fences));
        if (!fences)
            return false;
        list->fences = fences;
        list->max = max;
    }
    list->fences[list->count++] = fence;
    return true;
}

static void free_list(struct fence_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        fence_put(list->fences[i]);
    free(list->fences);
}

static void pending_signalled(struct fence *fence, struct fence_cb *cb)
{
    (void)fence;
    struct pending *pending = container_of(cb, struct pending, cb);
    pthread_mutex_lock(&lock);
    struct pending **link = &all_pending;
    while (*link && *link != pending)
        link = &(*link)->next;
    if (*link)
        *link = pending->next;
    pthread_mutex_unlock(&lock);
    if (pending->lock_fd >= 0)
        close(pending->lock_fd);
    fence_put(pending->fence);
    free(pending);
}

static int add_pending(int fd, struct fence *fence, bool write)
{
    struct stat st;
    uint64_t random;
    struct pending *pending = calloc(1, sizeof(*pending));
    if (!pending || fstat(fd, &st) || getrandom(&random, sizeof(random), 0) != sizeof(random)) {
        free(pending);
        return -ENOMEM;
    }
    pending->dev = st.st_dev;
    pending->ino = st.st_ino;
    pending->fence = fence_get(fence);
    pending->byte = (write ? WRITES_AT : READS_AT) + (int64_t)(random % BYTES);
    struct flock mark = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = pending->byte, .l_len = 1};
    pending->lock_fd = open_again(fd);
    if (pending->lock_fd >= 0 && fcntl(pending->lock_fd, F_OFD_SETLK, &mark)) {
        close(pending->lock_fd);
        pending->lock_fd = -1;
    }
    pthread_mutex_lock(&lock);
    pending->next = all_pending;
    all_pending = pending;
    pthread_mutex_unlock(&lock);
    if (!fence_add_callback(fence, &pending->cb, pending_signalled))
        pending_signalled(fence, &pending->cb);
    return 0;
}

/* Whether the byte stands for a fence of this process. */
static bool is_mine(int64_t byte)
{
    pthread_mutex_lock(&lock);
    const struct pending *pending = all_pending;
    while (pending && pending->byte != byte)
        pending = pending->next;
    pthread_mutex_unlock(&lock);
    return pending;
}

/* ---- fences of other processes ---- */

struct foreign {
    struct fence *fence;
    int fd;
    int64_t byte;
};

static void *wait_foreign(void *argument)
{
    struct foreign *foreign = argument;
    struct flock mark = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = foreign->byte, .l_len = 1};
    while (fcntl(foreign->fd, F_OFD_SETLKW, &mark) && errno == EINTR) {
    }
    close(foreign->fd);
    fence_signal(foreign->fence, 0);
    fence_put(foreign->fence);
    free(foreign);
    return NULL;
}

static struct fence *watch_foreign(int fd, int64_t byte)
{
    pthread_t thread;
    struct foreign *foreign = calloc(1, sizeof(*foreign));
    struct fence *fence = fence_new();
    int again = open_again(fd);
    if (foreign && fence && again >= 0) {
        *foreign = (struct foreign){.fence = fence_get(fence), .fd = again, .byte = byte};
        if (thread_start(&thread, wait_foreign, foreign) == 0) {
            pthread_detach(thread);
            return fence;
        }
        fence_put(fence);
    }
    if (again >= 0)
        close(again);
    fence_put(fence);
    free(foreign);
    return NULL;
}

static int collect_foreign(int fd, int64_t from, struct fence_list *list)
{
    int probe = open_again(fd), r = 0;
    if (probe < 0)
        return -errno;
    for (int64_t at = from; !r && at < from + BYTES;) {
        struct flock mark = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = from + BYTES - at};
        if (fcntl(probe, F_OFD_GETLK, &mark) || mark.l_type == F_UNLCK)
            break;
        at = mark.l_start + 1;
        if (is_mine(mark.l_start))
            continue;
        struct fence *fence = watch_foreign(fd, mark.l_start);
        if (!fence || !append(list, fence)) {
            fence_put(fence);
            r = -ENOMEM;
        }
    }
    close(probe);
    return r;
}

/* One fence for all that an access with these flags waits for; NULL with *error. */
static struct fence *fence_for(int fd, unsigned flags, int *error)
{
    struct stat st;
    struct fence_list list = {0};
    bool reads = flags & DMA_BUF_SYNC_WRITE;
    *error = fstat(fd, &st) ? -errno : 0;
    pthread_mutex_lock(&lock);
    for (struct pending *pending = all_pending; pending && !*error; pending = pending->next) {
        if (pending->dev != st.st_dev || pending->ino != st.st_ino || !(reads || is_write(pending->byte)))
            continue;
        if (append(&list, pending->fence))
            fence_get(pending->fence);
        else
            *error = -ENOMEM;
    }
    pthread_mutex_unlock(&lock);
    if (!*error)
        *error = collect_foreign(fd, WRITES_AT, &list);
    if (!*error && reads)
        *error = collect_foreign(fd, READS_AT, &list);
    struct fence *fence = *error ? NULL : fence_join(list.fences, list.count);
    if (!fence && !*error)
        *error = -ENOMEM;
    free_list(&list);
    return fence;
}

int dma_buf_import_sync_file(int fd, void *argument)
{
    struct dma_buf_import_sync_file args;
    int r;
    if (copy_from_user(&args, (uint64_t)argument, sizeof(args)))
        return -EFAULT;
    if (args.flags & ~(uint32_t)DMA_BUF_SYNC_RW || !args.flags)
        return -EINVAL;
    struct fence *fence = sync_file_import(args.fd, &r);
    if (!fence)
        return r;
    r = fence_is_signalled(fence) ? 0 : add_pending(fd, fence, args.flags & DMA_BUF_SYNC_WRITE);
    fence_put(fence);
    return r;
}

int dma_buf_export_sync_file(int fd, void *argument)
{
    struct dma_buf_export_sync_file args;
    int r;
    if (copy_from_user(&args, (uint64_t)argument, sizeof(args)))
        return -EFAULT;
    if (args.flags & ~(uint32_t)DMA_BUF_SYNC_RW || !args.flags)
        return -EINVAL;
    struct fence *fence = fence_for(fd, args.flags, &r);
    if (!fence)
        return r;
    args.fd = sync_file_export(fence);
    fence_put(fence);
    if (args.fd < 0)
        return args.fd;
    if (copy_to_user((uint64_t)argument, &args, sizeof(args))) {
        close(args.fd);
        return -EFAULT;
    }
    return 0;
}

int dma_buf_wait(int fd, unsigned flags)
{
    int r;
    struct fence *fence = fence_for(fd, flags, &r);
    if (!fence)
        return r;
    r = fence_wait(fence, FOREVER);
    fence_put(fence);
    return r;
}

void dma_buf_fences_fork_child(void)
{
    for (struct pending *pending = all_pending; pending; pending = pending->next) {
        if (pending->lock_fd >= 0)
            close(pending->lock_fd);
        pending->lock_fd = -1;
    }
    all_pending = NULL;
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
