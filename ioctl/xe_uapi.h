#pragma once
/* The declarations of xe_uapi.cdef for C. Not to be mixed with <drm/xe_drm.h>: same names, same numbers, one of them.
 */
#include <stddef.h>
#include <stdint.h>

#include "xe_uapi.cdef"
