#pragma once
/* Deadlines are nanoseconds of CLOCK_MONOTONIC. */
#include <stdint.h>
#include <time.h>

/*
 * The longest that a call stays in C when nothing happens, nanoseconds. A signal may have been delivered to another
 * thread, and Python runs its handlers in the main thread only: so every long call comes up for air.
 */
#define SLICE_NS 250000000LL

static inline int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000LL + now.tv_nsec;
}
