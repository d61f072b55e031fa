#include "xe_open.h"
#include "fds.h"
#include "slice.h"
#include "xe_fence.h"
#include "xe_objects.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_ONLY = 1, KERNEL_PAGE = 4096 };

#define LIMIT (1ull << 63)

/* Columns of a message have no alignment. */
static uint64_t u64_at(const uint8_t *column, uint64_t index)
{
    uint64_t value;

    memcpy(&value, column + index * sizeof(value), sizeof(value));
    return le64toh(value);
}

static uint64_t object_size(const struct xe_open *open, uint64_t object)
{
    return u64_at(open->columns, object);
}

static uint64_t offset_of(const struct xe_open *open, uint64_t extent)
{
    return u64_at(open->columns, open->num_objects + extent);
}

static uint64_t size_of(const struct xe_open *open, uint64_t extent)
{
    return u64_at(open->columns, open->num_objects + open->count + extent);
}

static uint32_t object_of(const struct xe_open *open, uint64_t extent)
{
    uint32_t value;

    memcpy(&value, open->columns + 8 * (open->num_objects + 2 * open->count) + extent * sizeof(value), sizeof(value));
    return le32toh(value);
}

static const uint8_t *access_of(const struct xe_open *open)
{
    return open->columns + 8 * (open->num_objects + 2 * open->count) + 4 * open->count;
}

/* The rules of ze_ipc.manifest.parse(), which says what is wrong where this says no. */
static bool is_sane(const struct xe_open *open)
{
    const uint8_t *access = access_of(open);
    uint64_t known = 0, covered = 0;

    for (uint64_t i = 0; i < open->num_objects; i++) {
        uint64_t size = object_size(open, i);

        if (size & (KERNEL_PAGE - 1) || size >= LIMIT)
            return false;
    }
    for (uint64_t i = 0; i < open->count; i++) {
        uint64_t index = object_of(open, i), offset = offset_of(open, i), size = size_of(open, i);

        if ((offset | size) & (open->page_size - 1) || size == 0 || (offset | size) >= LIMIT || access[i] & ~READ_ONLY)
            return false;
        if (index > known || index >= open->num_objects)
            return false;
        known += index == known;
        if (offset + size > object_size(open, index))
            return false;
        covered += size;
        if (covered > open->size)
            return false;
    }
    return known == open->num_objects && covered == open->size;
}

static int import_all(struct xe_device *device, struct xe_open *open)
{
    int64_t begin = now_ns();
    uint64_t made = 0, done, size;
    int rc = xe_objects_import(device, open->fds, open->num_objects, open->objects, &made);

    for (uint64_t i = 0; rc == 0 && i < made; i++) {
        rc = xe_objects_sizes(device, open->objects + i, 1, &size, &done);
        if (rc == 0 && size != object_size(open, i))
            rc = -EBADMSG;
    }
    if (rc < 0)
        xe_objects_release(device, open->objects, made, &done);
    open->import_time = now_ns() - begin;
    return rc;
}

static int bind_all(struct xe_device *device, struct xe_open *open)
{
    uint64_t *columns = malloc(3 * open->count * sizeof(*columns));
    struct xe_bind what = {.vm_id = open->vm_id, .pat_own = open->pat_own, .pat_imported = open->pat_imported};
    int rc = -ENOMEM;

    open->fence = columns ? xe_fence_create(device) : NULL;
    if (open->fence) {
        uint64_t *objects = columns, *offsets = columns + open->count, *sizes = columns + 2 * open->count;

        for (uint64_t i = 0; i < open->count; i++) {
            objects[i] = open->objects[object_of(open, i)];
            offsets[i] = offset_of(open, i);
            sizes[i] = size_of(open, i);
        }
        what.objects = objects;
        what.offsets = offsets;
        what.sizes = sizes;
        what.access = access_of(open);
        rc = xe_bind_map(device, &what, 0, open->count, open->address, open->fence, open->deadline, &open->submitted);
        if (rc == 0 || !open->submitted) {
            xe_fence_destroy(device, open->fence);
            open->fence = NULL;
        }
    }
    free(columns);
    return rc;
}

int xe_open_extents(struct xe_device *device, struct xe_open *open)
{
    uint64_t done;
    int rc;

    open->submitted = 0;
    open->fence = NULL;
    if (!is_sane(open))
        return -EBADMSG;
    rc = import_all(device, open);
    if (rc < 0)
        return rc;
    rc = bind_all(device, open);
    if (rc < 0 && !open->submitted) {
        xe_objects_release(device, open->objects, open->num_objects, &done);
        return rc;
    }
    fds_close(open->fds, open->num_objects);
    if (rc == 0) {
        /* That it cannot be told is no error: the range needs the exporter no more. */
        send(open->socket, open->last_word, open->last_word_size, MSG_DONTWAIT | MSG_NOSIGNAL);
        close(open->socket);
    }
    return rc;
}
