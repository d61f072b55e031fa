#pragma once
/*
 * The two ends of the object stream: one dma-buf descriptor an object over a connected SOCK_SEQPACKET unix socket.
 *
 *   receiver -> sender   ack    {u64 received, u32 credit, u32 zero}          first of all, then after every message
 *   sender -> receiver   batch  {u64 first, u32 count, u32 zero} + count descriptors by SCM_RIGHTS, count in 1..253
 *                        or     {u64 index, u32 zero, u32 errno}: object `index` cannot be had, and this is the last
 * word
 *
 * received: how many objects have arrived in all (0 in the first ack). credit: how many descriptors the receiver can
 * take in one message, at least 1: a receiver that is short of descriptors would have them dropped by the kernel.
 * Batches come in order; the sender lets at most two be without an ack, for the kernel limits the descriptors in
 * flight. Integers are little-endian. No objects, no messages.
 *
 * Both functions never block beyond their slice: -EINTR means call again, the state goes on where it was. On any
 * error no descriptor stays open and the socket is to be closed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct iovec;

enum {
    STREAM_BATCH = 253,
    STREAM_WINDOW = 2,
};

/* What an error was about; the errno alone does not say. */
enum {
    STREAM_OK,
    /* -errno of a socket call, -ECONNRESET when the peer closed its end, -ETIME. */
    STREAM_SOCKET,
    /* The peer does not speak this protocol: -EBADMSG. */
    STREAM_PROTOCOL,
    /* -EMFILE or -ENFILE: no descriptor to be had, or the kernel dropped some on arrival. */
    STREAM_FDS,
    /* Object `failed`: the device refused to export or import it. */
    STREAM_OBJECT,
    /* Object `failed`: what arrived is not a dma-buf of exactly the declared size, -EBADMSG. */
    STREAM_SIZE,
    /* Object `failed`: the sender says that it cannot export it, by `peer_error`: -EREMOTEIO. */
    STREAM_PEER,
};

struct stream_send {
    int32_t socket;
    uint32_t reason;
    const uint64_t *objects;
    uint64_t count;
    int64_t deadline;
    uint64_t failed;
    /* Progress: zero at first. */
    uint64_t sent;
    uint64_t acknowledged;
    uint64_t ends[2];
    uint32_t unacknowledged;
    uint32_t credit;
    uint32_t batch;
    uint32_t backoff;
};

struct stream_receive {
    int32_t socket;
    uint32_t reason;
    /* Declared sizes in; handles out, one reference each: of the first `received` objects on an error too. */
    const uint64_t *sizes;
    uint64_t *objects;
    uint64_t count;
    int64_t deadline;
    uint64_t failed;
    /* What arrived in place of sizes[failed]. */
    uint64_t found_size;
    /* Nanoseconds that the imports took, without the waiting. */
    int64_t import_time;
    /* An errno of the sender, which may say anything from 1 to 4095. */
    uint32_t peer_error;
    /* Progress: zero at first. */
    uint64_t received;
    uint32_t greeted;
    uint32_t pending_ack;
};

/* The device's half: columns of objects to descriptors and back. Each returns 0 or -errno. */
struct object_stream_ops {
    /* A dma-buf descriptor for every object; *done is how many were made, on an error too. */
    int (*export)(void *device, const uint64_t *objects, uint64_t count, int32_t *fds, uint64_t *done);
    /* An object with one reference for every descriptor, which stays the caller's; declared: what the peer said. */
    int (*import)(void *device, const int32_t *fds, const uint64_t *declared, uint64_t count, uint64_t *objects,
                  uint64_t *done);
    /* The true size in bytes of every object; 0 where it has none. */
    void (*sizes)(void *device, const uint64_t *objects, uint64_t count, uint64_t *sizes);
};

/* One message with descriptors, at most STREAM_BATCH, without waiting: 0 or -errno. */
int object_stream_send_fds(int socket, struct iovec *parts, size_t num_parts, const int32_t *fds, uint32_t count);

/* Waits `pause` nanoseconds at most for poll() events: more than 0 when they came, 0, -ETIME at the deadline, -errno.
 */
int object_stream_wait(int fd, short events, int64_t pause, int64_t deadline);

/*
 * The receiver's first ack ahead of object_stream_receive(), which is told so by `greeted`: then the first objects come
 * while something else is done. Not sent where descriptors are scarce, for they may be gone by then.
 */
bool object_stream_greet(int socket);

int object_stream_send(const struct object_stream_ops *ops, void *device, struct stream_send *send);
int object_stream_receive(const struct object_stream_ops *ops, void *device, struct stream_receive *receive);
