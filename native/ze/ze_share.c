/* Objects as descriptors, and back; and objects that other code of the process owns. */
#include "ze_space_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static ze_context_handle_t context_for(const struct ze_space *space, const struct object *object, uint32_t entry)
{
    if (object->owner)
        return space->raw & entry ? ze_raw_handle(space->library, HANDLE_CONTEXT, object->owner) : object->owner;
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
    ze_context_handle_t context = object->owner ? object->owner : space->context;
    ze_ipc_mem_handle_t handle;

    if (object->imported || object->spare_fd || !space->table->MemPutIpcHandle)
        return;
    if (space->table->MemGetIpcHandle(context, raw_object(space, object->handle), &handle) == ZE_RESULT_SUCCESS)
        space->table->MemPutIpcHandle(context_for(space, object, ZE_RAW_PUT), handle);
}

static int ask_driver(struct ze_space *space, const struct object *object, int32_t *fd, uint32_t *result)
{
    ze_external_memory_export_fd_t export = {
        .stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, .fd = -1};
    ze_physical_mem_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES, .pNext = &export};
    ze_physical_mem_handle_t handle = object->handle;
    ze_context_handle_t context = context_for(space, object, ZE_RAW_PROPERTIES);
    int rc;

    if (!space->table->PhysicalMemGetProperties)
        return driver_refused(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, result);
    if (space->raw & ZE_RAW_PROPERTIES)
        handle = raw_object(space, handle);
    ze_ours++;
    rc = driver_refused(space->table->PhysicalMemGetProperties(context, handle, &properties), result);
    ze_ours--;
    if (rc < 0)
        return rc;
    *fd = fcntl(export.fd, F_DUPFD_CLOEXEC, 0);
    return *fd < 0 ? -errno : 0;
}

/* A copy of the descriptor that an object has already; -ENOENT where that is not, or no more, of its memory. */
static int copy_own(const struct object *object, int32_t *fd)
{
    struct stat status;

    if (object->fd < 0 || !object->known || fstat(object->fd, &status) < 0 || status.st_ino != object->inode ||
        status.st_dev != object->device)
        return -ENOENT;
    *fd = fcntl(object->fd, F_DUPFD_CLOEXEC, 0);
    return *fd < 0 ? -errno : 0;
}

static int export_one(struct ze_space *space, uint64_t number, int32_t *fd, uint32_t *result)
{
    struct object *object = ze_space_lookup(space, number);
    struct stat status;
    int rc;

    if (!object)
        return -EBADF;
    /* Asked for the descriptor of an import, Intel's driver makes one that it never closes. */
    rc = copy_own(object, fd);
    if (rc != -ENOENT)
        return rc;
    if (!object->handle)
        return object->owner ? -ESTALE : -EBADF;
    rc = ask_driver(space, object, fd, result);
    if (rc == 0 && fstat(*fd, &status) == 0)
        ze_space_remember(space, number, &status);
    if (rc == 0)
        drop_cached_fd(space, object);
    return rc;
}

int ze_objects_export(struct ze_space *space, const uint64_t *objects, uint64_t count, int32_t *fds, uint64_t *done,
                      uint32_t *result)
{
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

    for (struct ze_space *other = ze_spaces; other && !held; other = other->other) {
        if (other == space)
            continue;
        pthread_mutex_lock(&other->lock);
        held = ze_space_find(other, status) != 0;
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
    *number = ze_space_find(space, &status);
    if (*number && space->objects[*number].owner)
        return -EBUSY;
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
    rc = ze_space_create_object(space, &desc, number, result);
    if (rc < 0) {
        close(import.fd);
        return rc;
    }
    space->objects[*number].imported = true;
    space->objects[*number].fd = import.fd;
    ze_space_remember(space, *number, &status);
    return 0;
}

int ze_objects_import(struct ze_space *space, const int32_t *fds, uint64_t count, uint64_t *objects, uint64_t *done,
                      uint32_t *result)
{
    for (; *done < count; ++*done) {
        int rc;

        pthread_mutex_lock(&ze_spaces_lock);
        pthread_mutex_lock(&space->lock);
        rc = import_one(space, fds[*done], &objects[*done], result);
        pthread_mutex_unlock(&space->lock);
        pthread_mutex_unlock(&ze_spaces_lock);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- objects of other code in this process ---- */

static uint64_t *borrowed_bucket(struct ze_space *space, ze_physical_mem_handle_t handle)
{
    return &space->borrowed[((uintptr_t)handle >> 4) % SPACE_BUCKETS];
}

static uint64_t find_borrowed(struct ze_space *space, ze_physical_mem_handle_t handle)
{
    uint64_t number = *borrowed_bucket(space, handle);

    while (number && space->objects[number].handle != handle)
        number = space->objects[number].next_borrowed;
    return number;
}

int ze_object_borrow(struct ze_space *space, ze_physical_mem_handle_t handle, ze_context_handle_t owner, uint64_t size,
                     int spare_fd, uint64_t *number)
{
    int rc = 0;

    pthread_mutex_lock(&space->lock);
    *number = find_borrowed(space, handle);
    if (*number) {
        rc = space->objects[*number].references == UINT32_MAX ? -EOVERFLOW : 0;
        space->objects[*number].references += rc == 0;
    } else {
        *number = ze_space_new_object(space, size);
        rc = *number ? 0 : -ENOMEM;
    }
    if (rc == 0 && !space->objects[*number].owner) {
        uint64_t *head = borrowed_bucket(space, handle);

        space->objects[*number].handle = handle;
        space->objects[*number].owner = owner;
        space->objects[*number].spare_fd = spare_fd != 0;
        space->objects[*number].next_borrowed = *head;
        *head = *number;
    }
    pthread_mutex_unlock(&space->lock);
    return rc;
}

void ze_space_unborrow(struct ze_space *space, uint64_t number)
{
    struct object *object = &space->objects[number];
    uint64_t *link = borrowed_bucket(space, object->handle);

    if (!object->handle)
        return;
    while (*link != number)
        link = &space->objects[*link].next_borrowed;
    *link = object->next_borrowed;
}

void ze_spaces_spare_fd(ze_physical_mem_handle_t handle)
{
    pthread_mutex_lock(&ze_spaces_lock);
    for (struct ze_space *space = ze_spaces; space; space = space->other) {
        uint64_t number;

        pthread_mutex_lock(&space->lock);
        number = find_borrowed(space, handle);
        if (number)
            space->objects[number].spare_fd = true;
        pthread_mutex_unlock(&space->lock);
    }
    pthread_mutex_unlock(&ze_spaces_lock);
}

void ze_spaces_keep(ze_physical_mem_handle_t handle)
{
    pthread_mutex_lock(&ze_spaces_lock);
    for (struct ze_space *space = ze_spaces; space; space = space->other) {
        uint64_t number;

        pthread_mutex_lock(&space->lock);
        number = find_borrowed(space, handle);
        if (number) {
            uint32_t result;
            int32_t fd = -1;

            if (export_one(space, number, &fd, &result) < 0)
                fd = -1;
            ze_space_unborrow(space, number);
            space->objects[number].fd = fd;
            space->objects[number].handle = NULL;
        }
        pthread_mutex_unlock(&space->lock);
    }
    pthread_mutex_unlock(&ze_spaces_lock);
}
