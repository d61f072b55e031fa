#pragma once
/* The declarations of the cdef files for C. Not to be mixed with <level_zero/ze_api.h>: same names, same layouts. */
#include <stddef.h>
#include <stdint.h>

#include "ze_api.cdef"
#include "ze_range.cdef"
#include "ze_table.cdef"
