#include "xe_describe.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

struct extent {
    uint64_t offset;
    uint64_t size;
    uint32_t object;
    uint8_t access;
};

static uint32_t number_of(struct xe_describe *what, uint64_t object)
{
    uint64_t i;

    for (i = 0; i < what->num_distinct; i++) {
        if (what->distinct[i] == object)
            return (uint32_t)i;
    }
    what->distinct[what->num_distinct++] = object;
    return (uint32_t)i;
}

/* Neighbours that continue each other in object, offset and access are one extent. */
static uint64_t merge(struct xe_describe *what, struct extent *extents)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < what->count; i++) {
        const struct extent row = {.offset = what->offsets[i],
                                   .size = what->ends[i] - what->starts[i],
                                   .object = number_of(what, what->objects[i]),
                                   .access = what->access[i]};
        struct extent *last = count ? &extents[count - 1] : NULL;

        if (last && last->object == row.object && last->access == row.access && last->offset + last->size == row.offset)
            last->size += row.size;
        else
            extents[count++] = row;
    }
    return count;
}

static int hold(struct xe_device *device, const struct xe_describe *what, uint64_t *sizes)
{
    uint64_t held = 0;
    int rc = 0;

    xe_handles_lock(device);
    while (held < what->num_distinct && rc == 0) {
        sizes[held] = xe_handle_size(device, what->distinct[held]);
        rc = xe_handle_retain(device, what->distinct[held]);
        held += rc == 0;
    }
    while (rc < 0 && held > 0)
        xe_handle_release(device, what->distinct[--held]);
    xe_handles_unlock(device);
    return rc;
}

static uint8_t *put64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof(value));
    return at + sizeof(value);
}

static uint8_t *put32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof(value));
    return at + sizeof(value);
}

int xe_describe(struct xe_device *device, struct xe_describe *what)
{
    struct extent extents[DESCRIBE_MOST];
    uint64_t sizes[DESCRIBE_MOST];
    uint8_t *at = what->columns;
    int rc;

    if (what->count == 0 || what->count > DESCRIBE_MOST)
        return -EINVAL;
    what->num_distinct = 0;
    what->extents = merge(what, extents);
    rc = hold(device, what, sizes);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < what->num_distinct; i++)
        at = put64(at, sizes[i]);
    for (uint64_t i = 0; i < what->extents; i++)
        at = put64(at, extents[i].offset);
    for (uint64_t i = 0; i < what->extents; i++)
        at = put64(at, extents[i].size);
    for (uint64_t i = 0; i < what->extents; i++)
        at = put32(at, extents[i].object);
    for (uint64_t i = 0; i < what->extents; i++)
        *at++ = extents[i].access;
    what->size = (uint64_t)(at - what->columns);
    return 0;
}
