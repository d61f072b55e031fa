#pragma once
/* Sync objects: a place for a fence, or for a line of numbered ones.

   syncobj_lock is a leaf: nothing is locked, waited for or signalled under it. A fork takes it, so the child finds it
   free. */
#include "core.h"

/* Somebody who wants to know of the next fence put in. */
struct syncobj_watch {
    struct syncobj_watch *next;
    uint64_t point;
    struct waiter *waiter;                          /* kicked, under syncobj_lock; or, if NULL, */
    void (*installed)(struct syncobj_watch *watch); /* called once, without locks, off the list */
    void (*dropped)(struct syncobj_watch *watch);   /* instead, when the syncobj dies */
    /* With a waiter: the first fence of the point that was put in, even if it was replaced since. A reference. */
    struct fence *fence;
};

struct syncobj {
    atomic_uint refs;
    struct fence *fence; /* the binary fence, or the timeline's last point; NULL: none yet */
    struct syncobj_watch *watches;
};

extern pthread_mutex_t syncobj_lock;

struct syncobj *syncobj_new(void);
struct syncobj *syncobj_get(struct syncobj *syncobj);
/* A handle for it in the file; -errno. Takes over the reference on success. */
int syncobj_add_handle(struct drm_file *file, struct syncobj *syncobj, uint32_t *handle);
/* 0: the binary fence goes, there is none. */
void syncobj_clear(struct syncobj *syncobj);
/* Highest point all of whose predecessors have happened, or the highest one put in; 0 without a timeline. */
uint64_t syncobj_query(struct syncobj *syncobj, bool submitted);
/* The fence of the watch's point; if there is none yet, NULL, and then the watch is told of the next one put in. */
struct fence *syncobj_fence_or_watch(struct syncobj *syncobj, struct syncobj_watch *watch);
/* Whether a fence that came from a syncobj has signalled. */
bool syncobj_fence_is_over(struct fence *fence);
/* What a watch with a waiter was told, NULL if nothing yet; a reference. */
struct fence *syncobj_told(struct syncobj_watch *watch);
/* Not told any more; its fence is given back. */
void syncobj_unwatch(struct syncobj *syncobj, struct syncobj_watch *watch);

/* References of all of them, in *syncobjs, to be given back by syncobj_put_array(). -ENOMEM, -EFAULT, -ENOENT. */
int syncobj_lookup_array(struct drm_file *file, uint64_t user, uint32_t count, struct syncobj ***syncobjs);
void syncobj_put_array(struct syncobj **syncobjs, uint32_t count);

/* Signals when all of them have; the first error among them is its own. Never a point. NULL when memory is short. */
struct fence *fence_join(struct fence **fences, uint32_t count);
/* The same for a fence that is there already; false when memory is short. */
bool fence_follow(struct fence *result, struct fence **fences, uint32_t count);

/* ---- timelines (timeline.c) ---- */

/* A new point behind `before`, which may be no point, or NULL. NULL when memory is short. */
struct fence *timeline_add(struct fence *before, struct fence *fence, uint64_t number);
/* These with syncobj_lock held. What must signal for the number to have happened, a reference; 0 stands for all; NULL:
   not put in, or `last` is no point. */
struct fence *timeline_find(struct fence *last, uint64_t number);
/* Whether a fence has signalled, or all it was made of has, of which it is just about to hear: programs must not see it
   late. */
bool timeline_is_over(struct fence *fence);
/* Of a point: its number, or if it is pending the highest number on its line that has happened. */
uint64_t timeline_happened(struct fence *last);
/* What is pending before a point, borrowed; what has happened is forgotten. */
struct fence *timeline_before(struct fence_point *point);
