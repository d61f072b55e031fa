#include "sync_watch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "queue.h"
#include "store_dir.h"

/* A leaf; a fork takes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sync_watch *watches;
static int epoll_fd = -1;

/* False: nothing is left to wait for, and the thread must go without touching anything. */
static bool forget(struct sync_watch *watch)
{
    pthread_mutex_lock(&lock);
    struct sync_watch **link = &watches;
    while (*link && *link != watch)
        link = &(*link)->next;
    if (*link)
        *link = watch->next;
    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    bool more = watches;
    if (!more) {
        close(epoll_fd);
        epoll_fd = -1;
    }
    pthread_mutex_unlock(&lock);
    return more;
}

static void *watch_thread(void *argument)
{
    int fd = (int)(intptr_t)argument;
    for (bool more = true; more;) {
        struct epoll_event event;
        int n = epoll_wait(fd, &event, 1, -1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        struct sync_watch *watch = event.data.ptr;
        int ready_fd = watch->fd;
        more = forget(watch);
        watch->ready(watch, ready_fd);
        close(ready_fd);
    }
    return NULL;
}

/* lock held. */
static int start(void)
{
    pthread_t thread;
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return -errno;
    int high = high_dup(fd);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    int r = thread_start(&thread, watch_thread, (void *)(intptr_t)fd);
    if (r) {
        close(fd);
        return r;
    }
    pthread_detach(thread);
    epoll_fd = fd;
    return 0;
}

int sync_watch_add(struct sync_watch *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    pthread_mutex_lock(&lock);
    int r = epoll_fd < 0 ? start() : 0;
    if (!r && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, watch->fd, &event))
        r = -errno;
    if (!r) {
        watch->next = watches;
        watches = watch;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

void sync_watch_fork_child(void)
{
    for (struct sync_watch *watch = watches; watch; watch = watch->next)
        close(watch->fd);
    watches = NULL;
    if (epoll_fd >= 0)
        close(epoll_fd);
    epoll_fd = -1;
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
