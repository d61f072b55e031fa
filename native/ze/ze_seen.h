#pragma once
/* What was seen of other code's memory: rows of each kind, thread-safe. */
#include "ze_observe.h"
#include "ze_rows.h"

#include <stdbool.h>

enum seen_kind {
    SEEN_MAPPINGS,
    SEEN_ALLOCATIONS,
    SEEN_RESERVATIONS,
    /* At the addresses that are their handles: object is a number, offset the size, access SEEN_HOST and so on. */
    SEEN_OBJECTS,
    SEEN_KINDS,
};

enum {
    SEEN_HOST = 1,
    /* Its owner has the descriptor that the driver keeps for it. */
    SEEN_FD_USED = 2,
};

/* Enters a row in the place of whatever was there and has gone unseen. */
void seen_add(enum seen_kind kind, const struct row *row);

/* Enters an object under a number of its own. */
void seen_create(struct row row);

/* Enters a mapping of the object that has this handle. */
void seen_map(struct row row, uint64_t handle);

/* The owner of an object asks for its descriptor. */
void seen_use_fd(uint64_t handle);

void seen_set_access(uint64_t start, uint64_t end, uint32_t access);

/* Takes a range away, before the driver does; what settle takes, or null. */
struct seen_removed *seen_remove(enum seen_kind kind, uint64_t start, uint64_t end);

/* The same with the whole allocation that an address is in. */
struct seen_removed *seen_remove_allocation(uint64_t address);

/* Afterwards: what the driver refused to take is put back. */
void seen_settle(struct seen_removed *removed, bool refused);

/* Everything of a context; the objects' handles are given to ze_spaces_keep. */
void seen_drop_context(const void *context);

void seen_clear(void);
