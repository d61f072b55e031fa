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
    /* If not 0: -EINTR when this time has come, for who holds a lock meanwhile. */
    int64_t patience;
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
    /* Progress: 0 at first; the question is on its way. */
    uint32_t asked;
};

/*
 * 0; -EINTR: call again (the slice is over); -ETIME at the deadline; -EXDEV where the directory may be written by
 * others or is another user's, which is to be looked at more closely; -ECONNRESET when the broker ended the connection
 * without an answer; any other -errno. After an error the broker has not given anything. As ze_ipc._held calls
 * functions, like all below.
 */
int ask_broker(void *unused, struct ask *ask);

enum { TELL_MOST = 24 };

/* One message that is not answered. */
struct tell {
    /* As of struct ask; a socket is used as it is, and where there is none, -1, a connection is made. */
    const char *directory;
    const char *name;
    int32_t socket;
    uint32_t size;
    uint8_t message[TELL_MOST];
};

/* Sends it without waiting and closes the socket: 0 or -errno. */
int ask_tell(void *unused, struct tell *tell);

/* The question alone, which waits for nothing: ask_broker() goes on from there. */
int ask_start(void *unused, struct ask *ask);
