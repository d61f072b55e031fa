#include "object_stream.h"
#include "fds.h"
#include "slice.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct ack {
    uint64_t received;
    uint32_t credit;
    uint32_t zero;
};

/* count 0: there is no object `first`, for `error` (an errno), and nothing comes any more. */
struct batch {
    uint64_t first;
    uint32_t count;
    uint32_t error;
};

enum { MOST_ERRNO = 4095 };

/* Room for a full batch, and for credentials in case somebody has set SO_PASSCRED. */
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(STREAM_BATCH * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

/* A few descriptors stay for the other threads of the process. */
static uint32_t spare_fds(void)
{
    enum { OTHERS = 8 };
    uint32_t unused = fds_free(STREAM_BATCH + OTHERS);

    return unused > 2 * OTHERS ? unused - OTHERS : (unused + 1) / 2;
}

int object_stream_wait(int fd, short events, int64_t pause, int64_t deadline)
{
    struct pollfd set = {.fd = fd, .events = events};
    int64_t left = deadline - now_ns();
    int64_t nap = left < pause ? left : pause;
    struct timespec timeout;
    int rc;

    if (left <= 0)
        return -ETIME;
    timeout = (struct timespec){.tv_sec = nap / 1000000000LL, .tv_nsec = nap % 1000000000LL};
    rc = ppoll(&set, 1, &timeout, NULL);
    if (rc < 0)
        return -errno;
    return rc;
}

static bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK;
}

/* ---- sender ---- */

static int send_failed(struct stream_send *send, uint32_t reason, int rc)
{
    send->reason = reason;
    send->failed = send->acknowledged;
    return rc;
}

/* 1: took one, 0: none there. */
static int take_ack(struct stream_send *send)
{
    struct ack ack;
    ssize_t got = recv(send->socket, &ack, sizeof(ack), MSG_DONTWAIT | MSG_TRUNC);
    uint64_t received;

    if (got < 0 && would_block(errno))
        return 0;
    if (got < 0 && errno == EINTR)
        return 0;
    if (got < 0)
        return send_failed(send, STREAM_SOCKET, -errno);
    if (got == 0)
        return send_failed(send, STREAM_SOCKET, -ECONNRESET);
    received = le64toh(ack.received);
    if (got != sizeof(ack) || ack.zero || le32toh(ack.credit) == 0)
        return send_failed(send, STREAM_PROTOCOL, -EBADMSG);
    if (send->credit == 0) {
        if (received != 0)
            return send_failed(send, STREAM_PROTOCOL, -EBADMSG);
    } else {
        if (send->unacknowledged == 0 || received != send->ends[0])
            return send_failed(send, STREAM_PROTOCOL, -EBADMSG);
        send->acknowledged = received;
        send->ends[0] = send->ends[1];
        send->unacknowledged--;
    }
    send->credit = le32toh(ack.credit);
    return 1;
}

int object_stream_send_fds(int socket, struct iovec *parts, size_t num_parts, const int32_t *fds, uint32_t count)
{
    union control control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = num_parts, .msg_control = control.bytes};
    struct cmsghdr *header;

    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    memset(control.bytes, 0, message.msg_controllen);
    header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int send_header_and_fds(int socket, uint64_t first, const int32_t *fds, uint32_t count)
{
    struct batch batch = {.first = htole64(first), .count = htole32(count)};
    struct iovec part = {.iov_base = &batch, .iov_len = sizeof(batch)};

    return object_stream_send_fds(socket, &part, 1, fds, count);
}

/* Exports, sends and closes the next batch. 0, or -EAGAIN when the socket is full, -ETOOMANYREFS when the user is. */
static int send_batch(const struct object_stream_ops *ops, void *device, struct stream_send *send)
{
    int32_t fds[STREAM_BATCH];
    uint64_t left = send->count - send->sent;
    uint64_t want = left < STREAM_BATCH ? left : STREAM_BATCH;
    uint64_t made = 0;
    int rc;

    want = want < send->credit ? want : send->credit;
    fds_lock();
    if (send->batch == 0)
        send->batch = spare_fds();
    /* At least one, though none be free: its EMFILE is the answer then. */
    want = want < send->batch ? want : send->batch ? send->batch : 1;
    rc = ops->export(device, send->objects + send->sent, want, fds, &made);
    if ((rc == -EMFILE || rc == -ENFILE) && made > 0) {
        send->batch = (uint32_t)made;
        rc = 0;
    }
    if (rc < 0) {
        send->failed = send->sent + made;
        send->reason = rc == -EMFILE || rc == -ENFILE ? STREAM_FDS : STREAM_OBJECT;
    } else {
        rc = send_header_and_fds(send->socket, send->sent, fds, (uint32_t)made);
        if (rc < 0 && !would_block(-rc) && rc != -ETOOMANYREFS && rc != -EINTR)
            send_failed(send, STREAM_SOCKET, rc);
    }
    fds_close(fds, made);
    fds_unlock();
    if (rc == 0) {
        send->sent += made;
        send->ends[send->unacknowledged++] = send->sent;
        send->backoff = 0;
    }
    return rc;
}

/* A pause that doubles from 1 to 64 ms, ended early by an ack. */
static int64_t next_pause(struct stream_send *send)
{
    int64_t pause = 1000000LL << send->backoff;

    if (send->backoff < 6)
        send->backoff++;
    return pause;
}

/* Tells the peer why the stream ends, unless it knows; if it cannot be told, it sees the end alone. */
static int give_up(const struct stream_send *failed, int rc)
{
    struct batch word = {.first = htole64(failed->failed), .error = htole32((uint32_t)-rc)};

    if (failed->reason == STREAM_OBJECT || failed->reason == STREAM_FDS)
        send(failed->socket, &word, sizeof(word), MSG_DONTWAIT | MSG_NOSIGNAL);
    return rc;
}

int object_stream_send(const struct object_stream_ops *ops, void *device, struct stream_send *send)
{
    int64_t until = now_ns() + SLICE_NS;

    while (send->acknowledged < send->count) {
        short events = POLLIN;
        int64_t pause = SLICE_NS;
        int rc = take_ack(send);

        if (rc < 0)
            return rc;
        if (rc > 0)
            continue;
        if (send->credit && send->unacknowledged < STREAM_WINDOW && send->sent < send->count) {
            rc = send_batch(ops, device, send);
            if (rc == -ETOOMANYREFS)
                pause = next_pause(send);
            else if (rc == -EAGAIN)
                events |= POLLOUT;
            else if (rc < 0 && rc != -EINTR)
                return give_up(send, rc);
            else if (now_ns() < until)
                continue;
            else
                return -EINTR;
        }
        rc = object_stream_wait(send->socket, events, pause, send->deadline);
        if (rc == -ETIME)
            return send_failed(send, STREAM_SOCKET, rc);
        if (rc < 0)
            return rc;
        if (now_ns() > until)
            return -EINTR;
    }
    return 0;
}

/* ---- receiver ---- */

static int receive_failed(struct stream_receive *receive, uint32_t reason, int rc)
{
    receive->reason = reason;
    receive->failed = receive->received;
    return rc;
}

static bool is_gone(int error)
{
    return error == EPIPE || error == ECONNRESET;
}

bool object_stream_greet(int socket)
{
    const struct ack ack = {.credit = htole32(STREAM_BATCH)};

    /* Twice as many as one message brings. */
    if (fds_free(2 * STREAM_BATCH) < 2 * STREAM_BATCH)
        return false;
    return send(socket, &ack, sizeof(ack), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(ack);
}

/* 1: sent, or nobody is there to hear it; 0: the socket is full. */
static int send_ack(struct stream_receive *receive)
{
    struct ack ack = {.received = htole64(receive->received)};
    uint32_t credit;

    fds_lock();
    credit = spare_fds();
    fds_unlock();
    if (credit == 0)
        return receive_failed(receive, STREAM_FDS, -EMFILE);
    ack.credit = htole32(credit < STREAM_BATCH ? credit : STREAM_BATCH);
    if (send(receive->socket, &ack, sizeof(ack), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        if (would_block(errno) || errno == EINTR)
            return 0;
        /* What it sent before it went is still to be read: objects, or its last word. */
        return is_gone(errno) ? 1 : receive_failed(receive, STREAM_SOCKET, -errno);
    }
    return 1;
}

/* Takes every descriptor out of a message, whatever its shape, so that none is lost. */
static uint32_t collect(struct msghdr *message, int32_t *fds)
{
    uint32_t count = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        size_t size = header->cmsg_len - CMSG_LEN(0);

        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        memcpy(fds + count, CMSG_DATA(header), size);
        count += (uint32_t)(size / sizeof(int));
    }
    return count;
}

static int import_batch(const struct object_stream_ops *ops, void *device, struct stream_receive *receive,
                        const int32_t *fds, uint32_t count)
{
    uint64_t sizes[STREAM_BATCH] = {0};
    uint64_t at = receive->received;
    uint64_t done = 0;
    int rc = ops->import(device, fds, receive->sizes + at, count, receive->objects + at, &done);

    receive->received += done;
    if (rc < 0)
        return receive_failed(receive, STREAM_OBJECT, rc);
    ops->sizes(device, receive->objects + at, count, sizes);
    for (uint32_t i = 0; i < count; i++) {
        if (sizes[i] == receive->sizes[at + i])
            continue;
        receive->reason = STREAM_SIZE;
        receive->failed = at + i;
        receive->found_size = sizes[i];
        return -EBADMSG;
    }
    return 0;
}

/* Why the sender cannot go on, if that is what the message says; else 0. */
static int last_word(struct stream_receive *receive, const struct batch *batch)
{
    uint64_t index = le64toh(batch->first);
    uint32_t error = le32toh(batch->error);

    if (batch->count || error == 0 || error > MOST_ERRNO || index < receive->received || index >= receive->count)
        return 0;
    receive->reason = STREAM_PEER;
    receive->failed = index;
    receive->peer_error = error;
    return -EREMOTEIO;
}

/* A reset hides what was sent before it, but only once. */
static ssize_t receive_message(int socket, struct msghdr *message)
{
    struct msghdr again = *message;
    ssize_t got = recvmsg(socket, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (got >= 0 || errno != ECONNRESET)
        return got;
    *message = again;
    return recvmsg(socket, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
}

/* 1: took one, 0: none there. */
static int take_batch(const struct object_stream_ops *ops, void *device, struct stream_receive *receive)
{
    struct batch batch = {0};
    struct iovec part = {.iov_base = &batch, .iov_len = sizeof(batch)};
    union control control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    int32_t fds[sizeof(control.bytes) / sizeof(int32_t)];
    int64_t arrived;
    uint32_t count;
    ssize_t got;
    int rc;

    fds_lock();
    got = receive_message(receive->socket, &message);
    if (got < 0) {
        rc = would_block(errno) || errno == EINTR ? 0 : receive_failed(receive, STREAM_SOCKET, -errno);
        fds_unlock();
        return rc;
    }
    arrived = now_ns();
    count = collect(&message, fds);
    if (message.msg_flags & MSG_CTRUNC)
        rc = receive_failed(receive, STREAM_FDS, -EMFILE);
    else if (got == 0 && count == 0)
        rc = receive_failed(receive, STREAM_SOCKET, -ECONNRESET);
    else if (got != sizeof(batch) || message.msg_flags & MSG_TRUNC)
        rc = receive_failed(receive, STREAM_PROTOCOL, -EBADMSG);
    else if (count == 0 && (rc = last_word(receive, &batch)))
        ;
    else if (batch.error || count == 0 || le64toh(batch.first) != receive->received || le32toh(batch.count) != count ||
             count > receive->count - receive->received)
        rc = receive_failed(receive, STREAM_PROTOCOL, -EBADMSG);
    else
        rc = import_batch(ops, device, receive, fds, count);
    fds_close(fds, count);
    receive->import_time += now_ns() - arrived;
    fds_unlock();
    return rc < 0 ? rc : 1;
}

int object_stream_receive(const struct object_stream_ops *ops, void *device, struct stream_receive *receive)
{
    int64_t until = now_ns() + SLICE_NS;

    while (receive->received < receive->count || receive->pending_ack) {
        bool ack = receive->pending_ack || !receive->greeted;
        int rc = ack ? send_ack(receive) : take_batch(ops, device, receive);

        if (rc < 0)
            return rc;
        if (rc > 0) {
            receive->greeted = 1;
            receive->pending_ack = !ack;
            if (now_ns() < until)
                continue;
            return -EINTR;
        }
        rc = object_stream_wait(receive->socket, ack ? POLLOUT : POLLIN, SLICE_NS, receive->deadline);
        if (rc == -ETIME)
            return receive_failed(receive, STREAM_SOCKET, rc);
        if (rc < 0)
            return rc;
        if (now_ns() > until)
            return -EINTR;
    }
    return 0;
}
