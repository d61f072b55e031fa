#include "ze_space.h"
#include "slice.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BUCKETS = 4096,
    /* zel_handle_type_t */
    HANDLE_CONTEXT = 2,
    HANDLE_PHYSICAL_MEM = 13,
};

struct object {
    ze_physical_mem_handle_t handle;
    uint64_t size;
    uint32_t references;
    bool imported;
    /* Identity of its dma-buf, known from its first export or import on. */
    bool known;
    dev_t device;
    ino_t inode;
    /* Next in its bucket or, when unused, in the list of unused ones; 0 ends both. */
    uint64_t next;
};

struct ze_space {
    const struct ze_table *table;
    ze_context_handle_t context;
    ze_device_handle_t device;
    char *library;
    uint32_t raw;
    ze_context_handle_t raw_context;
    /* Guards everything below. */
    pthread_mutex_t lock;
    /* Indexed by object; 0 is none. */
    struct object *objects;
    uint64_t capacity;
    uint64_t unused;
    uint64_t live;
    uint64_t buckets[BUCKETS];
    struct ze_space *other;
};

/*
 * All spaces of the process, for the kernel's handles are the process's. Its lock comes before that of a space; whoever
 * imports holds it.
 */
static pthread_mutex_t spaces_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ze_space *spaces;

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
    pthread_mutex_lock(&spaces_lock);
    space->other = spaces;
    spaces = space;
    pthread_mutex_unlock(&spaces_lock);
    return space;
}

void ze_space_destroy(struct ze_space *space)
{
    struct ze_space **link = &spaces;

    if (!space)
        return;
    pthread_mutex_lock(&spaces_lock);
    while (*link != space)
        link = &(*link)->other;
    *link = space->other;
    pthread_mutex_unlock(&spaces_lock);
    for (uint64_t i = 1; i < space->capacity; i++) {
        if (space->objects[i].references && space->objects[i].handle)
            space->table->PhysicalMemDestroy(space->context, space->objects[i].handle);
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

static struct object *lookup(struct ze_space *space, uint64_t number)
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
    return &space->buckets[(uint64_t)inode % BUCKETS];
}

static uint64_t find(struct ze_space *space, const struct stat *status)
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

static void remember(struct ze_space *space, uint64_t number, const struct stat *status)
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

static int driver_refused(uint32_t code, uint32_t *result)
{
    *result = code;
    return code == ZE_RESULT_SUCCESS ? 0 : -EIO;
}

static int create(struct ze_space *space, ze_physical_mem_desc_t *desc, uint64_t *number, uint32_t *result)
{
    struct object *object;
    int rc;

    *number = take_number(space);
    if (*number == 0)
        return -ENOMEM;
    object = &space->objects[*number];
    rc = driver_refused(space->table->PhysicalMemCreate(space->context, space->device, desc, &object->handle), result);
    if (rc < 0) {
        give_number(space, *number);
        return rc;
    }
    object->size = desc->size;
    object->references = 1;
    object->next = 0;
    space->live++;
    return 0;
}

/* ---- objects ---- */

int ze_object_create(struct ze_space *space, uint64_t size, uint32_t flags, uint64_t *object, uint32_t *result)
{
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .flags = flags, .size = size};
    int rc;

    pthread_mutex_lock(&space->lock);
    rc = create(space, &desc, object, result);
    pthread_mutex_unlock(&space->lock);
    return rc;
}

int ze_object_adopt(struct ze_space *space, uint64_t size, uint64_t *object)
{
    pthread_mutex_lock(&space->lock);
    *object = take_number(space);
    if (*object) {
        space->objects[*object] = (struct object){.size = size, .references = 1};
        space->live++;
    }
    pthread_mutex_unlock(&space->lock);
    return *object ? 0 : -ENOMEM;
}

int ze_objects_retain(struct ze_space *space, const uint64_t *objects, uint64_t count, uint64_t *done)
{
    int rc = 0;

    pthread_mutex_lock(&space->lock);
    for (*done = 0; *done < count; ++*done) {
        struct object *object = lookup(space, objects[*done]);

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
    struct object *object = lookup(space, number);
    ze_physical_mem_handle_t handle;

    if (!object)
        return -EBADF;
    if (--object->references)
        return 0;
    handle = object->handle;
    forget(space, number);
    give_number(space, number);
    space->live--;
    if (!handle)
        return 0;
    return driver_refused(space->table->PhysicalMemDestroy(space->context, handle), result);
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
        const struct object *object = lookup(space, objects[*done]);

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
    object = lookup(space, number);
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
        rc = driver_refused(
            space->table->VirtualMemMap(space->context, (void *)(uintptr_t)at, sizes[i], handle, offsets[i], attribute),
            result);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- descriptors ---- */

static ze_context_handle_t context_for(const struct ze_space *space, uint32_t entry)
{
    return space->raw & entry ? space->raw_context : space->context;
}

static ze_physical_mem_handle_t raw_object(const struct ze_space *space, ze_physical_mem_handle_t handle)
{
    return ze_raw_handle(space->library, HANDLE_PHYSICAL_MEM, handle);
}

/*
 * Intel's driver keeps the descriptor that it once made for an object, until an IPC handle of the object is put. So an
 * exported range would cost one for every object for as long as it lives.
 */
static void drop_cached_fd(struct ze_space *space, const struct object *object)
{
    ze_ipc_mem_handle_t handle;

    if (object->imported || !space->table->MemPutIpcHandle)
        return;
    if (space->table->MemGetIpcHandle(space->context, raw_object(space, object->handle), &handle) == ZE_RESULT_SUCCESS)
        space->table->MemPutIpcHandle(context_for(space, ZE_RAW_PUT), handle);
}

static int export_one(struct ze_space *space, uint64_t number, int32_t *fd, uint32_t *result)
{
    struct object *object = lookup(space, number);
    ze_external_memory_export_fd_t export = {
        .stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, .fd = -1};
    ze_physical_mem_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES, .pNext = &export};
    ze_physical_mem_handle_t handle;
    struct stat status;
    int rc;

    if (!object || !object->handle)
        return -EBADF;
    handle = space->raw & ZE_RAW_PROPERTIES ? raw_object(space, object->handle) : object->handle;
    rc = driver_refused(
        space->table->PhysicalMemGetProperties(context_for(space, ZE_RAW_PROPERTIES), handle, &properties), result);
    if (rc < 0)
        return rc;
    *fd = fcntl(export.fd, F_DUPFD_CLOEXEC, 0);
    rc = *fd < 0 ? -errno : 0;
    if (rc == 0 && fstat(*fd, &status) == 0)
        remember(space, number, &status);
    drop_cached_fd(space, object);
    return rc;
}

int ze_objects_export(struct ze_space *space, const uint64_t *objects, uint64_t count, int32_t *fds, uint64_t *done,
                      uint32_t *result)
{
    if (!space->table->PhysicalMemGetProperties)
        return driver_refused(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, result);
    for (; *done < count; ++*done) {
        int rc;

        pthread_mutex_lock(&space->lock);
        rc = export_one(space, objects[*done], &fds[*done], result);
        pthread_mutex_unlock(&space->lock);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Asked of the kernel by name, not by a call that whoever made the descriptor could answer, or never answer. */
static bool is_dma_buf(int fd)
{
    static const char wanted[] = "/dmabuf:";
    char path[32], target[sizeof(wanted) - 1];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof(target)) == (ssize_t)sizeof(target) &&
           memcmp(target, wanted, sizeof(target)) == 0;
}

/* Whether another context of this process has the memory: the driver would close its GEM handle under it. */
static bool is_held_elsewhere(const struct ze_space *space, const struct stat *status)
{
    bool held = false;

    for (struct ze_space *other = spaces; other && !held; other = other->other) {
        if (other == space)
            continue;
        pthread_mutex_lock(&other->lock);
        held = find(other, status) != 0;
        pthread_mutex_unlock(&other->lock);
    }
    return held;
}

static int import_one(struct ze_space *space, int fd, uint64_t *number, uint32_t *result)
{
    ze_external_memory_import_fd_t import = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD,
                                             .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF};
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC,
                                   .pNext = &import,
                                   .flags = ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE};
    struct stat status;
    int rc;

    if (!is_dma_buf(fd))
        return -EINVAL;
    if (fstat(fd, &status) < 0)
        return -errno;
    *number = find(space, &status);
    if (*number) {
        if (space->objects[*number].references == UINT32_MAX)
            return -EOVERFLOW;
        space->objects[*number].references++;
        return 0;
    }
    if (is_held_elsewhere(space, &status))
        return -EBUSY;
    /* The driver's own: it closes it with the object. */
    import.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (import.fd < 0)
        return -errno;
    desc.size = (size_t)status.st_size;
    rc = create(space, &desc, number, result);
    if (rc < 0) {
        close(import.fd);
        return rc;
    }
    space->objects[*number].imported = true;
    remember(space, *number, &status);
    return 0;
}

int ze_objects_import(struct ze_space *space, const int32_t *fds, uint64_t count, uint64_t *objects, uint64_t *done,
                      uint32_t *result)
{
    for (; *done < count; ++*done) {
        int rc;

        pthread_mutex_lock(&spaces_lock);
        pthread_mutex_lock(&space->lock);
        rc = import_one(space, fds[*done], &objects[*done], result);
        pthread_mutex_unlock(&space->lock);
        pthread_mutex_unlock(&spaces_lock);
        if (rc < 0)
            return rc;
    }
    return 0;
}
