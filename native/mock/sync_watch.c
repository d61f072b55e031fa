#include "sync_watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "queue.h"
#include "store_dir.h"

/* The thread stays so long when there is nothing to wait for. */
#define IDLE_MS 2000

/* A leaf; a fork takes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static struct sync_watch *watches;
static atomic_uint num_watches; /* on the list or being called */
static unsigned num_calls;      /* being called */
static int epoll_fd = -1;

/* Calls one that is ready; false: none is. An event is only good under the lock that removals are done under: later its
   watch may be another's memory. lock held, released during the call. */
static bool call_one(void)
{
    struct epoll_event event;
    if (epoll_fd < 0 || epoll_wait(epoll_fd, &event, 1, 0) != 1)
        return false;
    struct sync_watch *watch = event.data.ptr, **link = &watches;
    while (*link != watch)
        link = &(*link)->next;
    *link = watch->next;
    int fd = watch->fd;
    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    num_calls++;
    pthread_mutex_unlock(&lock);
    watch->ready(watch, fd);
    close(fd);
    pthread_mutex_lock(&lock);
    num_calls--;
    atomic_fetch_sub(&num_watches, 1);
    pthread_cond_broadcast(&called);
    return true;
}

static void *watch_thread(void *argument)
{
    int fd = (int)(intptr_t)argument;
    for (bool leave = false; !leave;) {
        struct epoll_event event;
        int n = epoll_wait(fd, &event, 1, IDLE_MS);
        pthread_mutex_lock(&lock);
        while (call_one()) {
        }
        leave = n == 0 && !watches;
        if (leave) {
            close(epoll_fd);
            epoll_fd = -1;
        }
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

void sync_watch_settle(void)
{
    if (atomic_load_explicit(&num_watches, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&lock);
    while (call_one()) {
    }
    while (num_calls)
        pthread_cond_wait(&called, &lock);
    pthread_mutex_unlock(&lock);
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
        atomic_fetch_add(&num_watches, 1);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

void sync_watch_fork_child(void)
{
    for (struct sync_watch *watch = watches; watch; watch = watch->next)
        close(watch->fd);
    watches = NULL;
    num_calls = 0;
    called = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    atomic_store(&num_watches, 0);
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
