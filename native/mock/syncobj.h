#pragma once
/* Sync objects: a place for a fence, or for a line of numbered ones.

   syncobj_lock is a leaf: nothing is locked, waited for or signalled under it. A fork takes it, so the child finds it
   free. */
#include "core.h"

/* One step of a timeline: its fence signals once this point and all before it have happened. */
struct syncobj_point {
    uint64_t number;
    struct fence *fence;
};

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
    struct fence *fence; /* the binary fence, or the last point's; NULL: none yet */
    struct syncobj_point *points;
    uint32_t num_points, max_points;
    bool timeline;
    uint64_t last_number;     /* of the timeline; points that happened are forgotten, */
    uint64_t happened_number; /* this is the last of those */
    struct syncobj_watch *watches;
};

extern pthread_mutex_t syncobj_lock;

struct syncobj *syncobj_new(void);
struct syncobj *syncobj_get(struct syncobj *syncobj);
/* A handle for it in the file; -errno. Takes over the reference on success. */
int syncobj_add_handle(struct drm_file *file, struct syncobj *syncobj, uint32_t *handle);
/* 0: the binary fence goes, there is none. */
void syncobj_clear(struct syncobj *syncobj);
/* Highest point all of whose predecessors have happened, or the highest one put in; 0 for binary ones. */
uint64_t syncobj_query(struct syncobj *syncobj, bool submitted);
/* The fence of the watch's point; if there is none yet, NULL, and then the watch is told of the next one put in. */
struct fence *syncobj_fence_or_watch(struct syncobj *syncobj, struct syncobj_watch *watch);
/* What a watch with a waiter was told, NULL if nothing yet; a reference. */
struct fence *syncobj_told(struct syncobj_watch *watch);
/* Not told any more; its fence is given back. */
void syncobj_unwatch(struct syncobj *syncobj, struct syncobj_watch *watch);

/* References of all of them, in *syncobjs, to be given back by syncobj_put_array(). -ENOMEM, -EFAULT, -ENOENT. */
int syncobj_lookup_array(struct drm_file *file, uint64_t user, uint32_t count, struct syncobj ***syncobjs);
void syncobj_put_array(struct syncobj **syncobjs, uint32_t count);

/* Signals when all of them have; the first error among them is its own. NULL when memory is short. */
struct fence *fence_join(struct fence **fences, uint32_t count);
