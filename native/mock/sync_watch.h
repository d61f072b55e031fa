#pragma once
/* One thread that waits for descriptors: for fences of other processes and for syncobj descriptors to be closed
   everywhere. It lives while there is something to wait for. */

struct sync_watch {
    struct sync_watch *next;
    int fd; /* owned, closed after the call */
    /* Called once, in that thread and without locks, when fd is readable or its peer is gone. May free the watch. */
    void (*ready)(struct sync_watch *watch, int fd);
};

/* 0 or -errno; then fd is still the caller's. */
int sync_watch_add(struct sync_watch *watch);
/* Everything that is ready now has been called when this returns: for questions that must not be answered late. Not
   from within `ready`. */
void sync_watch_settle(void);
/* In a forked child: nobody watches any more; `ready` is called for nothing. */
void sync_watch_fork_child(void);
