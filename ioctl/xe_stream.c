#include "xe_stream.h"
#include "xe_objects.h"

static int export_objects(void *device, const uint64_t *objects, uint64_t count, int32_t *fds, uint64_t *done)
{
    return xe_objects_export(device, objects, count, fds, done);
}

static int import_objects(void *device, const int32_t *fds, const uint64_t *declared, uint64_t count, uint64_t *objects,
                          uint64_t *done)
{
    (void)declared;
    return xe_objects_import(device, fds, count, objects, done);
}

static void sizes_of(void *device, const uint64_t *objects, uint64_t count, uint64_t *sizes)
{
    uint64_t done;

    xe_objects_sizes(device, objects, count, sizes, &done);
}

static const struct object_stream_ops stream_ops = {
    .export = export_objects, .import = import_objects, .sizes = sizes_of};

int xe_stream_send(struct xe_device *device, struct stream_send *send)
{
    return object_stream_send(&stream_ops, device, send);
}

int xe_stream_receive(struct xe_device *device, struct stream_receive *receive)
{
    return object_stream_receive(&stream_ops, device, receive);
}

int xe_reply_send(struct xe_device *device, const struct object_reply *reply)
{
    return object_reply_send(&stream_ops, device, reply);
}

int xe_reply_import(struct xe_device *device, struct object_arrival *arrival)
{
    return object_reply_import(&stream_ops, device, arrival);
}

struct desk *xe_desk_create(struct xe_device *device, const struct desk_rules *rules, int epoll)
{
    return desk_create(&stream_ops, device, rules, epoll);
}
