#pragma once
/* A record of ioctls, for bug reports: operations that do what others do and write a line an ioctl. */
#include "xe_ops.h"

/* Operations as inner's whose ioctl() appends {"pid","tid","ioctl","errno","us"} as a line of JSON to fd, in one write:
   numbers only, nothing of the argument. fd stays the caller's and must stay open. NULL: no place for another inner. */
const struct xe_ops *xe_trace_ops(const struct xe_ops *inner, int fd);
