#include "ze_space.h"

struct stream {
    struct ze_space *space;
    uint32_t *result;
};

static int export_objects(void *device, const uint64_t *objects, uint64_t count, int32_t *fds, uint64_t *done)
{
    struct stream *stream = device;

    return ze_objects_export(stream->space, objects, count, fds, done, stream->result);
}

static int import_objects(void *device, const int32_t *fds, const uint64_t *declared, uint64_t count, uint64_t *objects,
                          uint64_t *done)
{
    struct stream *stream = device;

    (void)declared;
    return ze_objects_import(stream->space, fds, count, objects, done, stream->result);
}

static void sizes_of(void *device, const uint64_t *objects, uint64_t count, uint64_t *sizes)
{
    struct stream *stream = device;
    uint64_t done;

    ze_objects_sizes(stream->space, objects, count, sizes, &done);
}

static const struct object_stream_ops stream_ops = {
    .export = export_objects, .import = import_objects, .sizes = sizes_of};

int ze_stream_send(struct ze_space *space, struct stream_send *send, uint32_t *result)
{
    return object_stream_send(&stream_ops, &(struct stream){space, result}, send);
}

int ze_stream_receive(struct ze_space *space, struct stream_receive *receive, uint32_t *result)
{
    return object_stream_receive(&stream_ops, &(struct stream){space, result}, receive);
}

int ze_reply_send(struct ze_space *space, const struct object_reply *reply, uint32_t *result)
{
    return object_reply_send(&stream_ops, &(struct stream){space, result}, reply);
}

int ze_reply_import(struct ze_space *space, struct object_arrival *arrival, uint32_t *result)
{
    return object_reply_import(&stream_ops, &(struct stream){space, result}, arrival);
}
