#pragma once
#include "xe_ops.h"
/* The kernel's own open, close, ioctl and mmap. */
const struct xe_ops *xe_kernel_ops(void);
