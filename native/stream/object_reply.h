#pragma once
/*
 * A message that brings a whole export at once: what a few objects need less than the object stream does.
 */
#include "byte_stream.h"
#include "object_stream.h"

enum {
    /* Objects that travel this way at most. */
    REPLY_ROOM = 64,
};

struct object_reply {
    int32_t socket;
    uint32_t count;
    const uint64_t *objects;
    /* The message, of two parts. */
    const void *head;
    uint64_t head_size;
    const void *body;
    uint64_t body_size;
};

struct object_arrival {
    const int32_t *fds;
    /* Declared sizes in; objects out, one reference each: of the first `made` on an error too. */
    const uint64_t *sizes;
    uint64_t *objects;
    uint64_t count;
    uint64_t made;
    /* On an error: which object, and what it has in place of its size where that was the trouble, else 0. */
    uint64_t failed;
    uint64_t found_size;
};

/*
 * Sends the message with a dma-buf descriptor for every object, waiting for nothing. On an error, whatever it is,
 * nothing was sent: -EAGAIN where somebody else holds the descriptors' lock or the socket is full, -EMFILE where too
 * few are free.
 */
int object_reply_send(const struct object_stream_ops *ops, void *device, const struct object_reply *reply);

/* How many descriptors could come with a message, REPLY_ROOM at most; a few stay for other threads. */
uint32_t object_reply_room(void);

/* Imports what came with a message, each of exactly its size (else -EBADMSG); the descriptors are closed in any case.
 */
int object_reply_import(const struct object_stream_ops *ops, void *device, struct object_arrival *arrival);
