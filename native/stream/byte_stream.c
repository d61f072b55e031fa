#include "byte_stream.h"
#include "object_stream.h"
#include "slice.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

static uint64_t next_size(const struct byte_stream *stream)
{
    uint64_t left = stream->size - stream->done;

    return left < stream->message ? left : stream->message;
}

/* 0 when a message went, -EAGAIN when it has to wait. */
static int send_one(struct byte_stream *stream)
{
    uint64_t size = next_size(stream);

    if (send(stream->socket, stream->data + stream->done, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return -errno;
    stream->done += size;
    return 0;
}

static int receive_one(struct byte_stream *stream)
{
    uint64_t size = next_size(stream);
    ssize_t got = recv(stream->socket, stream->data + stream->done, size, MSG_DONTWAIT | MSG_TRUNC);

    if (got < 0)
        return -errno;
    if (got == 0)
        return -ECONNRESET;
    if ((uint64_t)got != size)
        return -EBADMSG;
    stream->done += size;
    return 0;
}

static int run(struct byte_stream *stream, int (*one)(struct byte_stream *), short events)
{
    int64_t until = now_ns() + SLICE_NS;

    while (stream->done < stream->size) {
        int rc = one(stream);

        if (rc == -EAGAIN || rc == -EWOULDBLOCK)
            rc = object_stream_wait(stream->socket, events, SLICE_NS, stream->deadline);
        if (rc < 0)
            return rc;
        if (stream->done < stream->size && now_ns() > until)
            return -EINTR;
    }
    return 0;
}

int byte_stream_send(struct byte_stream *stream)
{
    return run(stream, send_one, POLLOUT);
}

int byte_stream_receive(struct byte_stream *stream)
{
    return run(stream, receive_one, POLLIN);
}
