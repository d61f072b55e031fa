#pragma once
/*
 * Many bytes over a SOCK_SEQPACKET socket, in messages of `message` bytes and a last one of what is left, in one call:
 * a Python thread that is busy beside it costs every return to Python milliseconds.
 *
 * 0, or -errno: -EINTR means call again (the slice is over), -ETIME the deadline, -ECONNRESET that the peer ended,
 * -EBADMSG that a message has another size than it must have.
 */
#include <stdint.h>

struct byte_stream {
    int32_t socket;
    uint8_t *data;
    uint64_t size;
    uint64_t message;
    int64_t deadline;
    /* Progress: where to begin. */
    uint64_t done;
};

int byte_stream_send(struct byte_stream *stream);
int byte_stream_receive(struct byte_stream *stream);
