#pragma once
/* The object stream (object_stream.h) of a device's GEM objects. */
#include "desk.h"
#include "object_reply.h"
#include "object_stream.h"
#include "xe_device.h"

int xe_stream_send(struct xe_device *device, struct stream_send *send);
int xe_stream_receive(struct xe_device *device, struct stream_receive *receive);

int xe_reply_send(struct xe_device *device, const struct object_reply *reply);
int xe_reply_import(struct xe_device *device, struct object_arrival *arrival);

/* A desk for exports of this device, which must stay open as long as it is there. */
struct desk *xe_desk_create(struct xe_device *device, const struct desk_rules *rules, int epoll);
