#pragma once
#include "xe_ops.h"
/* The mock's open, close, ioctl and mmap. */
const struct xe_ops *xe_mock_ops(void);
