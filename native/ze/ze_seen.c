#include "ze_seen.h"
#include "ze_space_internal.h"

#include <stdlib.h>

/* All known rows, under one lock that comes before those of spaces. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rows known[SEEN_KINDS];
static uint64_t last_object;
static uint64_t calls;
static bool lost;

struct seen_removed {
    enum seen_kind kind;
    struct rows rows;
};

static void note(int rc)
{
    calls++;
    if (rc < 0)
        lost = true;
}

static void add(enum seen_kind kind, const struct row *row)
{
    note(rows_cut(&known[kind], row->start, row->end, NULL));
    note(rows_add(&known[kind], row));
}

void seen_add(enum seen_kind kind, const struct row *row)
{
    pthread_mutex_lock(&lock);
    add(kind, row);
    pthread_mutex_unlock(&lock);
}

void seen_create(struct row row)
{
    pthread_mutex_lock(&lock);
    row.object = ++last_object;
    add(SEEN_OBJECTS, &row);
    pthread_mutex_unlock(&lock);
}

void seen_map(struct row row, uint64_t handle)
{
    const struct row *object;

    pthread_mutex_lock(&lock);
    object = rows_find(&known[SEEN_OBJECTS], handle);
    /* 0 is of one that was made before. */
    row.object = object ? object->object : 0;
    row.device = (void *)(uintptr_t)handle;
    add(SEEN_MAPPINGS, &row);
    pthread_mutex_unlock(&lock);
}

void seen_use_fd(uint64_t handle)
{
    struct row *object;

    pthread_mutex_lock(&lock);
    object = rows_find(&known[SEEN_OBJECTS], handle);
    if (object)
        object->access |= SEEN_FD_USED;
    pthread_mutex_unlock(&lock);
}

void seen_set_access(uint64_t start, uint64_t end, uint32_t access)
{
    struct rows changed = {0};

    pthread_mutex_lock(&lock);
    note(rows_cut(&known[SEEN_MAPPINGS], start, end, &changed));
    for (size_t i = 0; i < changed.count; i++) {
        changed.at[i].access = access;
        add(SEEN_MAPPINGS, &changed.at[i]);
    }
    rows_clear(&changed);
    pthread_mutex_unlock(&lock);
}

static struct seen_removed *take(enum seen_kind kind, uint64_t start, uint64_t end)
{
    struct seen_removed *removed = calloc(1, sizeof(*removed));

    if (removed)
        removed->kind = kind;
    note(removed ? rows_cut(&known[kind], start, end, &removed->rows) : -ENOMEM);
    return removed;
}

struct seen_removed *seen_remove(enum seen_kind kind, uint64_t start, uint64_t end)
{
    struct seen_removed *removed;

    pthread_mutex_lock(&lock);
    removed = take(kind, start, end);
    pthread_mutex_unlock(&lock);
    return removed;
}

struct seen_removed *seen_remove_allocation(uint64_t address)
{
    struct seen_removed *removed = NULL;
    const struct row *row;

    pthread_mutex_lock(&lock);
    row = rows_find(&known[SEEN_ALLOCATIONS], address);
    if (row)
        removed = take(SEEN_ALLOCATIONS, row->start, row->end);
    pthread_mutex_unlock(&lock);
    return removed;
}

void seen_settle(struct seen_removed *removed, bool refused)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; refused && i < removed->rows.count; i++)
        add(removed->kind, &removed->rows.at[i]);
    pthread_mutex_unlock(&lock);
    rows_clear(&removed->rows);
    free(removed);
}

static void drop(struct rows *rows, const void *context, struct rows *dropped)
{
    size_t kept = 0;

    for (size_t i = 0; i < rows->count; i++) {
        if (rows->at[i].context == context)
            note(rows_add(dropped, &rows->at[i]));
        else
            rows->at[kept++] = rows->at[i];
    }
    rows->count = kept;
}

void seen_drop_context(const void *context)
{
    struct rows dropped[SEEN_KINDS] = {0};

    pthread_mutex_lock(&lock);
    for (int kind = 0; kind < SEEN_KINDS; kind++)
        drop(&known[kind], context, &dropped[kind]);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < dropped[SEEN_OBJECTS].count; i++)
        ze_spaces_keep((void *)(uintptr_t)dropped[SEEN_OBJECTS].at[i].start);
    for (int kind = 0; kind < SEEN_KINDS; kind++)
        rows_clear(&dropped[kind]);
}

void seen_clear(void)
{
    pthread_mutex_lock(&lock);
    for (int kind = 0; kind < SEEN_KINDS; kind++)
        rows_clear(&known[kind]);
    lost = false;
    pthread_mutex_unlock(&lock);
}

uint64_t ze_observe_calls(void)
{
    uint64_t seen;

    pthread_mutex_lock(&lock);
    seen = calls;
    pthread_mutex_unlock(&lock);
    return seen;
}

/* ---- a window ---- */

static int borrow(struct ze_space *space, const struct row *mapping, uint64_t *number)
{
    const struct row *object = rows_find(&known[SEEN_OBJECTS], (uint64_t)(uintptr_t)mapping->device);

    if (!object || object->object != mapping->object)
        return -ENXIO;
    if (!(object->access & SEEN_HOST) && object->device != space->device)
        return -EXDEV;
    return ze_object_borrow(space, mapping->device, object->context, object->offset, object->access & SEEN_FD_USED,
                            number);
}

static void give_back(struct ze_space *space, const struct ze_seen *seen, uint64_t count)
{
    uint64_t done;
    uint32_t result;

    ze_objects_release(space, seen->objects, count, &done, &result);
}

static int write_mappings(struct ze_space *space, uint64_t start, uint64_t end, struct ze_seen *seen)
{
    const struct rows *rows = &known[SEEN_MAPPINGS];
    size_t first = rows_place(rows, start);

    for (size_t i = first; i < rows->count && rows->at[i].start < end; i++, seen->mappings++) {
        const struct row *row = &rows->at[i];
        uint64_t at = i - first;
        int rc;

        if (at >= seen->room)
            continue;
        seen->starts[at] = row->start;
        seen->ends[at] = row->end;
        seen->offsets[at] = row->offset;
        seen->access[at] = row->access != 0;
        rc = borrow(space, row, &seen->objects[at]);
        if (rc < 0) {
            seen->address = row->start;
            give_back(space, seen, at);
            return rc;
        }
        if (i == first)
            seen->context = (uint64_t)(uintptr_t)row->context;
    }
    return 0;
}

static uint64_t write_spans(enum seen_kind kind, uint64_t start, uint64_t end, struct ze_seen *seen, uint64_t at)
{
    const struct rows *rows = &known[kind];
    uint64_t count = 0;

    for (size_t i = rows_place(rows, start); i < rows->count && rows->at[i].start < end; i++, count++) {
        if (at + count >= seen->room)
            continue;
        seen->starts[at + count] = rows->at[i].start;
        seen->ends[at + count] = rows->at[i].end;
    }
    return count;
}

int ze_observe_window(struct ze_space *space, uint64_t start, uint64_t end, struct ze_seen *seen)
{
    uint64_t written;
    int rc;

    seen->mappings = 0;
    pthread_mutex_lock(&lock);
    rc = lost ? -ENODATA : write_mappings(space, start, end, seen);
    if (rc == 0) {
        written = seen->mappings;
        seen->allocations = write_spans(SEEN_ALLOCATIONS, start, end, seen, written);
        seen->reservations = write_spans(SEEN_RESERVATIONS, start, end, seen, written + seen->allocations);
        if (written + seen->allocations + seen->reservations > seen->room) {
            give_back(space, seen, written < seen->room ? written : seen->room);
            rc = -ENOBUFS;
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}
