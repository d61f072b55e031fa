#include "fence.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Callback lists are touched for an instant only; a few locks for all fences keep a fence small. */
#define NUM_LOCKS 16
static pthread_mutex_t locks[NUM_LOCKS] = {[0 ... NUM_LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER};

static pthread_mutex_t *lock_of(const struct fence *fence)
{
    return &locks[((uintptr_t)fence >> 6) % NUM_LOCKS];
}

void fence_lock_all(void)
{
    for (int i = 0; i < NUM_LOCKS; i++)
        pthread_mutex_lock(&locks[i]);
}

void fence_unlock_all(void)
{
    for (int i = NUM_LOCKS - 1; i >= 0; i--)
        pthread_mutex_unlock(&locks[i]);
}

int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

struct fence *fence_new(void)
{
    struct fence *fence = calloc(1, sizeof(*fence));
    if (fence)
        atomic_init(&fence->refs, 1);
    return fence;
}

struct fence *fence_stub(void)
{
    static struct fence stub = {.refs = 1, .signalled = true};
    return fence_get(&stub);
}

struct fence *fence_get(struct fence *fence)
{
    atomic_fetch_add_explicit(&fence->refs, 1, memory_order_relaxed);
    return fence;
}

void fence_put(struct fence *fence)
{
    /* A loop, for a timeline may be long. */
    while (fence && atomic_fetch_sub_explicit(&fence->refs, 1, memory_order_acq_rel) == 1) {
        struct fence *before = NULL;
        if (fence->point) {
            before = fence->point->before;
            fence_put(fence->point->own);
            free(fence->point);
        }
        for (uint32_t i = 0; fence->group && i < fence->group->count; i++)
            fence_put(fence->group->fences[i]);
        free(fence->group);
        free(fence);
        fence = before;
    }
}

void fence_signal(struct fence *fence, int error)
{
    pthread_mutex_lock(lock_of(fence));
    if (fence_is_signalled(fence)) {
        pthread_mutex_unlock(lock_of(fence));
        return;
    }
    fence->error = error;
    fence->signalled_at = now_ns();
    atomic_store_explicit(&fence->signalled, true, memory_order_release);
    struct fence_cb *latest = fence->callbacks, *callbacks = NULL;
    fence->callbacks = NULL;
    pthread_mutex_unlock(lock_of(fence));

    /* In the order they came: what was made of this fence signals before somebody who came later wakes and looks. */
    while (latest) {
        struct fence_cb *cb = latest;
        latest = cb->next;
        cb->next = callbacks;
        callbacks = cb;
    }
    while (callbacks) {
        struct fence_cb *cb = callbacks;
        callbacks = cb->next;
        cb->func(fence, cb); /* may free cb */
    }
}

bool fence_add_callback(struct fence *fence, struct fence_cb *cb, void (*func)(struct fence *, struct fence_cb *))
{
    cb->func = func;
    pthread_mutex_lock(lock_of(fence));
    bool pending = !fence_is_signalled(fence);
    if (pending) {
        cb->next = fence->callbacks;
        fence->callbacks = cb;
    }
    pthread_mutex_unlock(lock_of(fence));
    return pending;
}

bool fence_remove_callback(struct fence *fence, struct fence_cb *cb)
{
    pthread_mutex_lock(lock_of(fence));
    struct fence_cb **link = &fence->callbacks;
    while (*link && *link != cb)
        link = &(*link)->next;
    bool found = *link;
    if (found)
        *link = cb->next;
    pthread_mutex_unlock(lock_of(fence));
    return found;
}

void waiter_kick(struct waiter *waiter)
{
    atomic_fetch_add_explicit(&waiter->sequence, 1, memory_order_release);
    syscall(SYS_futex, &waiter->sequence, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

int waiter_wait(struct waiter *waiter, unsigned seen, int64_t deadline)
{
    /* Always with a timeout: without one the kernel restarts the wait behind a signal handler, and a Python program
       would not see its Ctrl-C. */
    int64_t far = now_ns() + INT64_C(3600000000000);
    if (deadline > far)
        deadline = far;
    if (deadline < 0)
        deadline = 0;
    struct timespec until = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    long r =
        syscall(SYS_futex, &waiter->sequence, FUTEX_WAIT_BITSET_PRIVATE, seen, &until, NULL, FUTEX_BITSET_MATCH_ANY);
    if (r == 0 || errno == EAGAIN)
        return 0;
    if (errno == EINTR)
        return -EINTR;
    return deadline == far ? 0 : -ETIME;
}

struct one_wait {
    struct fence_cb cb;
    struct waiter waiter;
};

static void wake_one_wait(struct fence *fence, struct fence_cb *cb)
{
    (void)fence;
    struct one_wait *wait = (struct one_wait *)cb;
    waiter_kick(&wait->waiter);
}

int fence_wait(struct fence *fence, int64_t deadline)
{
    struct one_wait wait = {.waiter = {0}};
    if (fence_is_signalled(fence) || !fence_add_callback(fence, &wait.cb, wake_one_wait))
        return 0;
    int r = 0;
    while (r == 0 && waiter_seen(&wait.waiter) == 0)
        r = waiter_wait(&wait.waiter, 0, deadline);
    if (!fence_remove_callback(fence, &wait.cb)) {
        /* It runs or ran: `wait` is on this stack and must outlive it. */
        while (waiter_seen(&wait.waiter) == 0)
            waiter_wait(&wait.waiter, 0, FOREVER);
        return 0;
    }
    return r;
}
