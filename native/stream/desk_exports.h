#pragma once
/* What a desk answers for, by generation; the caller holds its lock. */
#include "desk.h"

#include <stdbool.h>

struct desk_entry {
    struct desk_export offer;
    uint32_t streams;
    bool withdrawn;
};

struct desk_exports {
    /* By ascending generation. */
    struct desk_entry **entries;
    uint64_t count;
    uint64_t room;
};

int desk_exports_add(struct desk_exports *exports, const struct desk_export *offer);

/* How many streams go on, or -ENOENT. */
int desk_exports_remove(struct desk_exports *exports, uint64_t generation);

/* The export of exactly this handle, compared in constant time, or NULL. */
struct desk_entry *desk_exports_find(const struct desk_exports *exports, const uint8_t *handle);

/* A stream less; whether the export had been withdrawn. */
bool desk_entry_end(struct desk_entry *entry);

void desk_exports_clear(struct desk_exports *exports);
