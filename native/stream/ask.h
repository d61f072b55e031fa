#pragma once
/*
 * An importer's question to a broker and the first message of the answer, in one call: what the Python side of ze_ipc
 * (transport.py) does in many, for the plain case.
 */
#include <stdint.h>

enum {
    ASK_REQUEST = 72,
    /* Descriptors that may come with the answer, and a few that nobody asked for. */
    ASK_FDS = 64 + 2,
};

struct ask {
    /* Where the broker listens: an absolute path, and a name in it. */
    const char *directory;
    const char *name;
    /* As it goes over the wire; with objects != 0 the room for descriptors is filled in. */
    uint8_t request[ASK_REQUEST];
    uint32_t objects;
    /* The connection, the caller's when 0 was returned; -1 at first, and on every error but -EINTR. */
    int32_t socket;
    int64_t deadline;
    /* What came: of a message longer than the buffer no more than fits. */
    uint8_t *message;
    uint64_t room;
    uint64_t length;
    int32_t fds[ASK_FDS];
    uint32_t count;
    /* Some descriptors were dropped on the way. */
    uint32_t lost;
    /* The objects come by the stream, and may come at once: object_stream_greet(). */
    uint32_t greeted;
    /* Progress: 0 at first. */
    uint32_t asked;
};

/*
 * 0; -EINTR: call again (the slice is over); -ETIME at the deadline; -EXDEV where the directory may be written by
 * others or is another user's, which is to be looked at more closely; -ECONNRESET when the broker ended the connection
 * without an answer; any other -errno. After an error the broker has not given anything.
 */
int ask_broker(struct ask *ask);
