#include "desk_exports.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { GENERATION_AT = 48 };

/* Where that generation is, or would be. */
static uint64_t position(const struct desk_exports *exports, uint64_t generation)
{
    uint64_t low = 0, high = exports->count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (exports->entries[middle]->offer.generation < generation)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool holds(const struct desk_exports *exports, uint64_t at, uint64_t generation)
{
    return at < exports->count && exports->entries[at]->offer.generation == generation;
}

int desk_exports_add(struct desk_exports *exports, const struct desk_export *offer)
{
    uint64_t at = position(exports, offer->generation);
    struct desk_entry *entry;

    if (exports->count == exports->room) {
        uint64_t room = exports->room ? 2 * exports->room : 16;
        struct desk_entry **entries = realloc(exports->entries, room * sizeof(*entries));

        if (!entries)
            return -ENOMEM;
        exports->entries = entries;
        exports->room = room;
    }
    entry = calloc(1, sizeof(*entry));
    if (!entry)
        return -ENOMEM;
    entry->offer = *offer;
    memmove(exports->entries + at + 1, exports->entries + at, (exports->count - at) * sizeof(*exports->entries));
    exports->entries[at] = entry;
    exports->count++;
    return 0;
}

int desk_exports_remove(struct desk_exports *exports, uint64_t generation)
{
    uint64_t at = position(exports, generation);
    struct desk_entry *entry;
    int streams;

    if (!holds(exports, at, generation))
        return -ENOENT;
    entry = exports->entries[at];
    exports->count--;
    memmove(exports->entries + at, exports->entries + at + 1, (exports->count - at) * sizeof(*exports->entries));
    streams = (int)entry->streams;
    entry->withdrawn = true;
    if (streams == 0)
        free(entry);
    return streams;
}

struct desk_entry *desk_exports_find(const struct desk_exports *exports, const uint8_t *handle)
{
    uint8_t differs = 0;
    uint64_t generation, at;

    memcpy(&generation, handle + GENERATION_AT, sizeof(generation));
    generation = le64toh(generation);
    at = position(exports, generation);
    if (!holds(exports, at, generation))
        return NULL;
    for (int i = 0; i < DESK_HANDLE; i++)
        differs |= exports->entries[at]->offer.handle[i] ^ handle[i];
    return differs ? NULL : exports->entries[at];
}

bool desk_entry_end(struct desk_entry *entry)
{
    bool withdrawn = entry->withdrawn;

    if (--entry->streams == 0 && withdrawn)
        free(entry);
    return withdrawn;
}

void desk_exports_clear(struct desk_exports *exports)
{
    for (uint64_t i = 0; i < exports->count; i++)
        free(exports->entries[i]);
    free(exports->entries);
    *exports = (struct desk_exports){0};
}
