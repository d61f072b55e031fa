#include "object_reply.h"
#include "fds.h"

#include <errno.h>
#include <sys/uio.h>

enum { OTHERS = 8 };

static int send_locked(const struct object_stream_ops *ops, void *device, const struct object_reply *reply)
{
    struct iovec parts[] = {{.iov_base = (void *)reply->head, .iov_len = reply->head_size},
                            {.iov_base = (void *)reply->body, .iov_len = reply->body_size}};
    int32_t fds[REPLY_ROOM];
    uint64_t made = 0;
    int rc;

    if (fds_free(reply->count + OTHERS) < reply->count + OTHERS)
        return -EMFILE;
    rc = ops->export(device, reply->objects, reply->count, fds, &made);
    if (rc == 0)
        rc = object_stream_send_fds(reply->socket, parts, 2, fds, reply->count);
    fds_close(fds, made);
    return rc;
}

int object_reply_send(const struct object_stream_ops *ops, void *device, const struct object_reply *reply)
{
    int rc;

    if (reply->count == 0 || reply->count > REPLY_ROOM)
        return -EINVAL;
    if (!fds_trylock())
        return -EAGAIN;
    rc = send_locked(ops, device, reply);
    fds_unlock();
    return rc;
}

uint32_t object_reply_room(void)
{
    uint32_t unused = fds_free(REPLY_ROOM + OTHERS);

    return unused > OTHERS ? unused - OTHERS : 0;
}

int object_reply_import(const struct object_stream_ops *ops, void *device, struct object_arrival *arrival)
{
    int rc = ops->import(device, arrival->fds, arrival->sizes, arrival->count, arrival->objects, &arrival->made);

    fds_close(arrival->fds, arrival->count);
    arrival->failed = arrival->made;
    for (uint64_t i = 0; rc == 0 && i < arrival->count; i++) {
        uint64_t size = 0;

        ops->sizes(device, arrival->objects + i, 1, &size);
        if (size != arrival->sizes[i]) {
            arrival->failed = i;
            arrival->found_size = size;
            rc = -EBADMSG;
        }
    }
    return rc;
}
