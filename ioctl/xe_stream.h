#pragma once
/* The object stream (object_stream.h) of a device's GEM objects. */
#include "object_stream.h"
#include "xe_device.h"

int xe_stream_send(struct xe_device *device, struct stream_send *send);
int xe_stream_receive(struct xe_device *device, struct stream_receive *receive);
