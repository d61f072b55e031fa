#include "xe_uapi.h"
#include "xe_ops.h"
#include "xe_device.h"
