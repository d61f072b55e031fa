#pragma once
#include <stdint.h>
#include "xe_uapi.cdef"
