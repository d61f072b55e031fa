#pragma once
/* A fence: something that happens once. And the futex a thread sleeps on until it does.

   Callbacks run in the thread that signals, with no lock of the core held and after the fence reads as signalled; so
   fence_signal() is called with NO lock of core.h held. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fence;

struct fence_cb {
    struct fence_cb *next;
    void (*func)(struct fence *fence, struct fence_cb *cb);
};

/* What makes a fence a point of a timeline (timeline.c). */
struct fence_point {
    uint64_t number;
    uint64_t number_before; /* of the point it was put behind, if that is on its line */
    uint64_t line;          /* one for points whose numbers grow */
    struct fence *own;      /* what it was put in for; no point itself */
    struct fence *before;   /* the point signals once both have; NULL: nothing, or nothing that is pending */
};

/* What a fence was joined from: neither points nor joined themselves. */
struct fence_group {
    uint32_t count;
    struct fence *fences[];
};

struct fence {
    atomic_uint refs;
    atomic_bool signalled;
    /* 0 or a negative errno; valid once signalled. */
    int error;
    /* CLOCK_MONOTONIC nanoseconds of the signal; valid once signalled. */
    int64_t signalled_at;
    struct fence_cb *callbacks;
    /* Owned; NULL for most. */
    struct fence_point *point;
    struct fence_group *group;
};

/* NULL when memory is short. */
struct fence *fence_new(void);
/* A fence that has always been signalled; a new reference of a static one, never NULL. */
struct fence *fence_stub(void);
struct fence *fence_get(struct fence *fence);
/* NULL is fine. */
void fence_put(struct fence *fence);
void fence_signal(struct fence *fence, int error);

static inline bool fence_is_signalled(struct fence *fence)
{
    return atomic_load_explicit(&fence->signalled, memory_order_acquire);
}

/* Calls func once when the fence signals, after those added before; false, and no call, if it has already. The caller
 * keeps cb alive until then.
 */
bool fence_add_callback(struct fence *fence, struct fence_cb *cb, void (*func)(struct fence *, struct fence_cb *));
/* True if func will not be called any more; false if it was, or is being, called. */
bool fence_remove_callback(struct fence *fence, struct fence_cb *cb);

#define FOREVER INT64_MAX
/* CLOCK_MONOTONIC nanoseconds. */
int64_t now_ns(void);

/* 0 once signalled (whatever its error), -ETIME at the deadline (CLOCK_MONOTONIC ns), -EINTR when a signal handler ran.
 */
int fence_wait(struct fence *fence, int64_t deadline);

/* What one thread sleeps on while several things may wake it:
   seen = waiter_seen(w); if (nothing to do) waiter_wait(w, seen, deadline); look again. */
struct waiter {
    atomic_uint sequence;
};

static inline unsigned waiter_seen(struct waiter *waiter)
{
    return atomic_load_explicit(&waiter->sequence, memory_order_acquire);
}
/* Wakes all who sleep on it. The last thing it touches in memory is the sequence. */
void waiter_kick(struct waiter *waiter);
/* 0 when kicked since seen (or spuriously), -ETIME, -EINTR. */
int waiter_wait(struct waiter *waiter, unsigned seen, int64_t deadline);

/* For fork: all callback locks. */
void fence_lock_all(void);
void fence_unlock_all(void);
