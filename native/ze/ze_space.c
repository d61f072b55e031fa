#include "slice.h"
#include "ze_space_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t ze_spaces_lock = PTHREAD_MUTEX_INITIALIZER;
struct ze_space *ze_spaces;

struct ze_space *ze_space_create(const struct ze_table *table, ze_context_handle_t context, ze_device_handle_t device,
                                 const char *library, uint32_t raw)
{
    struct ze_space *space = calloc(1, sizeof(*space));

    if (!space)
        return NULL;
    space->table = table;
    space->context = context;
    space->device = device;
    space->raw = raw;
    space->library = strdup(library);
    if (!space->library) {
        free(space);
        return NULL;
    }
    space->raw_context = ze_raw_handle(library, HANDLE_CONTEXT, context);
    pthread_mutex_init(&space->lock, NULL);
    pthread_mutex_lock(&ze_spaces_lock);
    space->other = ze_spaces;
    ze_spaces = space;
    pthread_mutex_unlock(&ze_spaces_lock);
    return space;
}

/* What an object that is gone from the table had. */
static uint32_t destroy(struct ze_space *space, const struct object *object)
{
    uint32_t code = ZE_RESULT_SUCCESS;

    if (object->owner && object->fd >= 0)
        close(object->fd);
    if (object->owner || !object->handle)
        return code;
    ze_ours++;
    code = space->table->PhysicalMemDestroy(space->context, object->handle);
    ze_ours--;
    return code;
}

void ze_space_destroy(struct ze_space *space)
{
    struct ze_space **link = &ze_spaces;

    if (!space)
        return;
    pthread_mutex_lock(&ze_spaces_lock);
    while (*link != space)
        link = &(*link)->other;
    *link = space->other;
    pthread_mutex_unlock(&ze_spaces_lock);
    for (uint64_t i = 1; i < space->capacity; i++) {
        if (space->objects[i].references)
            destroy(space, &space->objects[i]);
    }
    pthread_mutex_destroy(&space->lock);
    free(space->objects);
    free(space->library);
    free(space);
}

uint64_t ze_objects_live(struct ze_space *space)
{
    uint64_t live;

    pthread_mutex_lock(&space->lock);
    live = space->live;
    pthread_mutex_unlock(&space->lock);
    return live;
}

/* ---- the table; all called with the lock held ---- */

struct object *ze_space_lookup(struct ze_space *space, uint64_t number)
{
    if (number == 0 || number >= space->capacity || space->objects[number].references == 0)
        return NULL;
    return &space->objects[number];
}

/* 0 when there is no memory. */
static uint64_t take_number(struct ze_space *space)
{
    uint64_t number;

    if (space->unused == 0) {
        uint64_t old = space->capacity, capacity = old ? 2 * old : 256;
        struct object *objects = realloc(space->objects, capacity * sizeof(*objects));

        if (!objects)
            return 0;
        memset(objects + old, 0, (capacity - old) * sizeof(*objects));
        for (uint64_t i = capacity - 1; i >= (old ? old : 1); i--) {
            objects[i].next = space->unused;
            space->unused = i;
        }
        space->objects = objects;
        space->capacity = capacity;
    }
    number = space->unused;
    space->unused = space->objects[number].next;
    return number;
}

static void give_number(struct ze_space *space, uint64_t number)
{
    space->objects[number] = (struct object){.next = space->unused};
    space->unused = number;
}

static uint64_t *bucket(struct ze_space *space, ino_t inode)
{
    return &space->buckets[(uint64_t)inode % SPACE_BUCKETS];
}

uint64_t ze_space_find(struct ze_space *space, const struct stat *status)
{
    uint64_t number = *bucket(space, status->st_ino);

    while (number) {
        const struct object *object = &space->objects[number];

        if (object->inode == status->st_ino && object->device == status->st_dev)
            return number;
        number = object->next;
    }
    return 0;
}

void ze_space_remember(struct ze_space *space, uint64_t number, const struct stat *status)
{
    struct object *object = &space->objects[number];
    uint64_t *head = bucket(space, status->st_ino);

    if (object->known)
        return;
    object->known = true;
    object->device = status->st_dev;
    object->inode = status->st_ino;
    object->next = *head;
    *head = number;
}

static void forget(struct ze_space *space, uint64_t number)
{
    struct object *object = &space->objects[number];
    uint64_t *link = bucket(space, object->inode);

    if (!object->known)
        return;
    while (*link != number)
        link = &space->objects[*link].next;
    *link = object->next;
}

static void fill(struct ze_space *space, struct object *object, uint64_t size)
{
    object->size = size;
    object->references = 1;
    object->fd = -1;
    object->next = 0;
    space->live++;
}

int ze_space_create_object(struct ze_space *space, ze_physical_mem_desc_t *desc, uint64_t *number, uint32_t *result)
{
    struct object *object;
    int rc;

    *number = take_number(space);
    if (*number == 0)
        return -ENOMEM;
    object = &space->objects[*number];
    ze_ours++;
    rc = driver_refused(space->table->PhysicalMemCreate(space->context, space->device, desc, &object->handle), result);
    ze_ours--;
    if (rc < 0) {
        give_number(space, *number);
        return rc;
    }
    fill(space, object, desc->size);
    return 0;
}

uint64_t ze_space_new_object(struct ze_space *space, uint64_t size)
{
    uint64_t number = take_number(space);

    if (number)
        fill(space, &space->objects[number], size);
    return number;
}

/* ---- objects ---- */

int ze_object_create(struct ze_space *space, uint64_t size, uint32_t flags, uint64_t *object, uint32_t *result)
{
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .flags = flags, .size = size};
    int rc;

    pthread_mutex_lock(&space->lock);
    rc = ze_space_create_object(space, &desc, object, result);
    pthread_mutex_unlock(&space->lock);
    return rc;
}

int ze_object_adopt(struct ze_space *space, uint64_t size, uint64_t *object)
{
    pthread_mutex_lock(&space->lock);
    *object = ze_space_new_object(space, size);
    pthread_mutex_unlock(&space->lock);
    return *object ? 0 : -ENOMEM;
}

int ze_objects_retain(struct ze_space *space, const uint64_t *objects, uint64_t count, uint64_t *done)
{
    int rc = 0;

    pthread_mutex_lock(&space->lock);
    for (*done = 0; *done < count; ++*done) {
        struct object *object = ze_space_lookup(space, objects[*done]);

        if (!object || object->references == UINT32_MAX) {
            rc = object ? -EOVERFLOW : -EBADF;
            break;
        }
        object->references++;
    }
    for (uint64_t i = 0; rc < 0 && i < *done; i++)
        space->objects[objects[i]].references--;
    pthread_mutex_unlock(&space->lock);
    return rc;
}

static int release(struct ze_space *space, uint64_t number, uint32_t *result)
{
    struct object *object = ze_space_lookup(space, number);
    struct object gone;

    if (!object)
        return -EBADF;
    if (--object->references)
        return 0;
    forget(space, number);
    if (object->owner)
        ze_space_unborrow(space, number);
    gone = *object;
    give_number(space, number);
    space->live--;
    return driver_refused(destroy(space, &gone), result);
}

int ze_objects_release(struct ze_space *space, const uint64_t *objects, uint64_t count, uint64_t *done,
                       uint32_t *result)
{
    int first = 0;

    *done = count;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t code = 0;
        int rc;

        pthread_mutex_lock(&space->lock);
        rc = release(space, objects[i], &code);
        pthread_mutex_unlock(&space->lock);
        if (rc < 0 && first == 0) {
            first = rc;
            *done = i;
            *result = code;
        }
    }
    return first;
}

int ze_objects_sizes(struct ze_space *space, const uint64_t *objects, uint64_t count, uint64_t *sizes, uint64_t *done)
{
    pthread_mutex_lock(&space->lock);
    for (*done = 0; *done < count; ++*done) {
        const struct object *object = ze_space_lookup(space, objects[*done]);

        sizes[*done] = object ? object->size : 0;
        if (!object)
            break;
    }
    pthread_mutex_unlock(&space->lock);
    return *done < count ? -EBADF : 0;
}

ze_physical_mem_handle_t ze_object_handle(struct ze_space *space, uint64_t number)
{
    const struct object *object;
    ze_physical_mem_handle_t handle;

    pthread_mutex_lock(&space->lock);
    object = ze_space_lookup(space, number);
    handle = object ? object->handle : NULL;
    pthread_mutex_unlock(&space->lock);
    return handle;
}

int ze_objects_map(struct ze_space *space, uint64_t address, const uint64_t *objects, const uint64_t *offsets,
                   const uint64_t *sizes, const uint8_t *access, uint64_t count, uint64_t *done, uint32_t *result)
{
    int64_t until = now_ns() + SLICE_NS;
    uint64_t at = address;

    for (uint64_t i = 0; i < *done; i++)
        at += sizes[i];
    for (; *done < count; at += sizes[(*done)++]) {
        uint64_t i = *done;
        ze_physical_mem_handle_t handle = ze_object_handle(space, objects[i]);
        uint32_t attribute = access[i] ? ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY : ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
        int rc;

        if (!handle)
            return -EBADF;
        if (i && now_ns() > until)
            return -EINTR;
        ze_ours++;
        rc = driver_refused(
            space->table->VirtualMemMap(space->context, (void *)(uintptr_t)at, sizes[i], handle, offsets[i], attribute),
            result);
        ze_ours--;
        if (rc < 0)
            return rc;
    }
    return 0;
}
