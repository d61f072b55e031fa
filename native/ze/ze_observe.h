#pragma once
/*
 * What other code of this process does with memory, seen through the loader's tracing layer: reservations, physical
 * memory, mappings and allocations from the moment on that it is switched on. One for the process; callbacks run on the
 * threads of whoever calls Level Zero, take one lock and never enter Python.
 */
#include "ze_table.h"

struct ze_space;

/* Not 0 while this thread makes a call of our own, which is not to be seen. */
extern _Thread_local int ze_ours;

/* Where ze_observe_start() failed: the function's name and what it said. */
struct ze_observe_report {
    const char *call;
    uint32_t result;
};

/*
 * Switches it on, through the loader that was opened under that name; Level Zero must have been started. 0; -ENOSYS:
 * the loader lacks report->call; -EIO: it refused; -ENOMEM.
 */
int ze_observe_start(const char *library, struct ze_observe_report *report);

/* Switches it off and forgets everything. -EBUSY: callbacks are under way, call again. */
int ze_observe_stop(void);

/* How many calls were seen, to find out whether any are. */
uint64_t ze_observe_calls(void);

/* What is known of a window. The arrays are the caller's, `room` entries each. */
struct ze_seen {
    uint64_t *starts;
    uint64_t *ends;
    /* Numbers in the space, one reference each. */
    uint64_t *objects;
    uint64_t *offsets;
    uint8_t *access;
    uint64_t room;
    /* Out: mappings; then those of allocations and reservations follow in starts and ends. */
    uint64_t mappings;
    uint64_t allocations;
    uint64_t reservations;
    /* Of the first mapping. */
    uint64_t context;
    /* Where it failed. */
    uint64_t address;
};

/*
 * What is mapped, allocated and reserved in [start, end), whole. 0; -ENOBUFS: more room is needed, as the numbers say;
 * -ENXIO: the object of the mapping at seen->address was made before it was switched on, or destroyed; -EXDEV: it is
 * memory of another device; -ENODATA: calls were lost for want of memory; -ENOMEM. On an error no reference is taken.
 */
int ze_observe_window(struct ze_space *space, uint64_t start, uint64_t end, struct ze_seen *seen);
