#pragma once
/*
 * The desk answers what a broker is asked without entering Python, where the answer is simple: a process of our own
 * user opens an export that every process of that user may open. All else is handed to Python as it stands. There is
 * no policy here: which exports are answered, and from when on no more, is what Python says.
 *
 * One thread runs desk_wait(); all other functions may be called by any thread. Ranges of many objects are sent by
 * threads of the desk's own, which never enter Python.
 */
#include "object_stream.h"

struct desk;

enum {
    /* A descriptor of the epoll set that is not the desk's can be read. */
    DESK_READY,
    /* A new connection that is not the desk's business, or has asked nothing for a while. */
    DESK_STRANGER,
    /* A request that is Python's to answer, in `message`. */
    DESK_ASKED,
    /* What an answered peer said at the end, or -errno (0: its end of the connection, -ETIME: nothing). */
    DESK_HEARD,
};

enum {
    DESK_HANDLE = 64,
    DESK_REQUEST = 8 + DESK_HANDLE,
    DESK_ROOM = 64,
};

/* Every event but DESK_READY hands its descriptor over. */
struct desk_event {
    uint32_t kind;
    int32_t fd;
    int32_t pid;
    uint32_t uid;
    uint32_t gid;
    /* Bytes of the message, of one more than DESK_REQUEST at most; negative: -errno. */
    int32_t length;
    uint64_t generation;
    /* A stream of an export that was withdrawn has ended: it counts no more. */
    uint32_t ended;
    uint8_t message[DESK_REQUEST + 1];
};

/* The bytes and objects stay as they are until the export is withdrawn and its streams have ended. */
struct desk_export {
    uint64_t generation;
    const uint8_t *handle;
    /* The first message is the head and `first` bytes of the manifest; what is left goes in messages of `rest`. */
    const uint8_t *head;
    uint64_t head_size;
    const uint8_t *manifest;
    uint64_t manifest_size;
    const uint64_t *objects;
    uint64_t count;
};

struct desk_rules {
    /* The first bytes of a request. */
    uint8_t magic[4];
    /* Its flag that asks for no objects. */
    uint16_t skip_objects;
    uint16_t zero;
    uint64_t first;
    uint64_t rest;
    /* Peers that were answered and have not said their last word, at most; of these streams, in all and a process. */
    uint32_t heard;
    uint32_t streams;
    uint32_t streams_a_peer;
    uint32_t unused;
    /* Nanoseconds. */
    int64_t early;
    int64_t last_word;
    /* How long the last word of a peer may wait until Python hears it, beside others; in the order in which they came.
     */
    int64_t patience;
    int64_t stream;
    int64_t stream_an_object;
};

struct desk *desk_create(const struct object_stream_ops *ops, void *device, const struct desk_rules *rules, int epoll);

/* 0, -ENOMEM, or -ESHUTDOWN after desk_close(). Generations ascend. */
int desk_offer(struct desk *desk, const struct desk_export *offer);

/*
 * Once this has returned nobody is answered: the number of streams that go on, each of which is an event with `ended`
 * later, or -ENOENT. `interrupt` breaks them, and what else was begun.
 */
int desk_withdraw(struct desk *desk, uint64_t generation, int interrupt);

/* Events, or 0 when `timeout` nanoseconds have passed (negative: never), or -errno. `room` is DESK_ROOM at least. */
int desk_wait(struct desk *desk, int listening, int64_t timeout, struct desk_event *events, uint32_t room);

/* How many peers were answered. */
uint64_t desk_answered(struct desk *desk);

/* Answers nobody any more and breaks the streams; whether they ended before the deadline. Idempotent. */
int desk_close(struct desk *desk, int64_t deadline);

/* Closes the descriptors: of a forked child, or when desk_wait() is called no more. */
void desk_abandon(struct desk *desk);

/* Only after desk_close() has said that the streams ended. */
void desk_free(struct desk *desk);
