/*
 * The extension in the test driver. A handle: magic, pid and the number of a memfd with the list of the range's parts,
 * which an importer opens below /proc; and the handle type that was asked for.
 */
#include "range_driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct part {
    int32_t fd;
    uint32_t access;
    uint64_t offset;
    uint64_t size;
};

struct list {
    uint64_t window_offset;
    uint64_t window_size;
    uint64_t count;
    struct part parts[];
};

struct handle {
    char magic[8];
    int32_t pid;
    int32_t fd;
    uint32_t type;
    char rest[44];
};

static size_t bytes_of(uint64_t count)
{
    return sizeof(struct list) + count * sizeof(struct part);
}

/* An import is mapped row by row, too. */
static const struct span *mapped_at(const char *at)
{
    const struct span *span = span_at(MAPPED, at);

    return span ? span : span_at(PART, at);
}

static uint32_t collect(char *start, char *end, struct list **list)
{
    const char *limit = getenv("ZE_TEST_MAX_PARTS");
    uint64_t most = limit ? strtoull(limit, NULL, 10) : UINT32_MAX;

    if (span_within(USM, start, end))
        return INVALID_ARGUMENT;
    for (char *at = start; at < end;) {
        const struct span *span = mapped_at(at);
        struct list *larger;
        char *last;

        if (!span)
            return ADDRESS_NOT_FOUND;
        if ((*list)->count == most)
            return UNSUPPORTED_SIZE;
        larger = realloc(*list, bytes_of((*list)->count + 1));
        if (!larger)
            abort();
        *list = larger;
        last = span->start + span->size < end ? span->start + span->size : end;
        larger->parts[larger->count++] = (struct part){.fd = fcntl(span->physical->fd, F_DUPFD_CLOEXEC, 64),
                                                       .access = span->access,
                                                       .offset = span->offset + (uint64_t)(at - span->start),
                                                       .size = (uint64_t)(last - at)};
        at = last;
    }
    return SUCCESS;
}

static void forget(const struct list *list)
{
    for (uint64_t i = 0; i < list->count; i++)
        close(list->parts[i].fd);
}

/* What the chain asks for: the range in any place of it, and a handle type. */
static uint32_t read_chain(const void *next, const ze_ipc_phys_mem_handle_range_ext_desc_t **range, uint32_t *type)
{
    const ze_ipc_phys_mem_handle_range_ext_desc_t *entry = next;

    for (; entry; entry = entry->pNext) {
        if (entry->stype == ZE_STRUCTURE_TYPE_IPC_PHYS_MEM_HANDLE_RANGE_EXT_DESC)
            *range = entry;
        else if (entry->stype == ZE_STRUCTURE_TYPE_IPC_MEM_HANDLE_TYPE_EXT_DESC)
            *type = ((const ze_ipc_mem_handle_type_ext_desc_t *)entry)->typeFlags;
        else
            return INVALID_ENUMERATION;
    }
    if (*type & ~(uint32_t)3)
        return INVALID_ENUMERATION;
    /* No fabric between memfds. */
    return *type & ZE_IPC_MEM_HANDLE_TYPE_FLAG_FABRIC_ACCESSIBLE ? UNSUPPORTED_ENUMERATION : SUCCESS;
}

static uint32_t export_range(const char *ptr, size_t size, struct handle *handle)
{
    char *start = (char *)((uintptr_t)ptr / PAGE * PAGE);
    char *end = (char *)(((uintptr_t)ptr + size + PAGE - 1) / PAGE * PAGE);
    struct list *list = calloc(1, sizeof(*list));
    uint32_t result;
    ssize_t length;

    if (!list)
        abort();
    list->window_offset = (uint64_t)(ptr - start);
    list->window_size = size;
    spans_lock();
    result = collect(start, end, &list);
    spans_unlock();
    length = (ssize_t)bytes_of(list->count);
    handle->fd = result == SUCCESS ? memfd_create("range-list", MFD_CLOEXEC) : -1;
    if (result == SUCCESS && write(handle->fd, list, (size_t)length) != length)
        result = OUT_OF_HOST_MEMORY;
    if (result != SUCCESS)
        forget(list);
    free(list);
    return result;
}

API(zeMemGetIpcHandleWithProperties, void *c, const void *ptr, void *next, ze_ipc_mem_handle_t *out)
{
    const ze_ipc_phys_mem_handle_range_ext_desc_t *range = NULL;
    struct handle handle = {.magic = "range 1", .pid = getpid()};
    uint32_t result;

    if (!is_context(c))
        return INVALID_NULL_HANDLE;
    result = read_chain(next, &range, &handle.type);
    if (result != SUCCESS)
        return result;
    if (!range || getenv("ZE_TEST_NO_RANGE"))
        return UNSUPPORTED_FEATURE;
    if (range->size == 0)
        return INVALID_SIZE;
    if (!ptr)
        return INVALID_NULL_POINTER;
    result = export_range(ptr, range->size, &handle);
    memcpy(out, &handle, sizeof(handle));
    return result;
}

/* The list behind a descriptor, or null. */
static struct list *read_list(int fd)
{
    struct list head, *list;

    if (pread(fd, &head, sizeof(head), 0) != sizeof(head))
        return NULL;
    list = malloc(bytes_of(head.count));
    if (list && pread(fd, list, bytes_of(head.count), 0) != (ssize_t)bytes_of(head.count)) {
        free(list);
        list = NULL;
    }
    return list;
}

API(zeMemPutIpcHandle, void *c, ze_ipc_mem_handle_t in)
{
    struct handle handle;
    struct list *list;

    if (!is_context(c))
        return INVALID_NULL_HANDLE;
    memcpy(&handle, &in, sizeof(handle));
    list = memcmp(handle.magic, "range 1", 8) == 0 && handle.pid == getpid() ? read_list(handle.fd) : NULL;
    if (!list)
        return INVALID_ARGUMENT;
    forget(list);
    free(list);
    close(handle.fd);
    return SUCCESS;
}

static int open_theirs(int pid, int fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static uint32_t map_part(const struct handle *handle, const struct part *part, char *at)
{
    int fd = open_theirs(handle->pid, part->fd);
    int prot = PROT_READ | (part->access == ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE ? PROT_WRITE : 0);
    struct physical *physical;

    if (fd < 0)
        return INVALID_ARGUMENT;
    if (mmap(at, part->size, prot, MAP_SHARED | MAP_FIXED, fd, (off_t)part->offset) == MAP_FAILED) {
        close(fd);
        return OUT_OF_DEVICE_MEMORY;
    }
    physical = physical_new(fd, part->offset + part->size);
    span_add(
        PART,
        (struct span){
            .start = at, .size = part->size, .physical = physical, .offset = part->offset, .access = part->access});
    physical_drop(physical);
    return SUCCESS;
}

static void remove_parts(const char *start, const char *end)
{
    struct span *part;

    while (start < end && (part = span_at(PART, start))) {
        start += part->size;
        span_remove(PART, part);
    }
}

static uint32_t map_list(const struct handle *handle, const struct list *list, void **out)
{
    uint64_t size = 0;
    uint32_t result = SUCCESS;
    char *base, *at;

    for (uint64_t i = 0; i < list->count; i++)
        size += list->parts[i].size;
    at = base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return OUT_OF_DEVICE_MEMORY;
    spans_lock();
    for (uint64_t i = 0; i < list->count && result == SUCCESS; at += list->parts[i++].size)
        result = map_part(handle, &list->parts[i], at);
    if (result == SUCCESS) {
        span_add(
            IMPORTED,
            (struct span){.start = base, .size = size, .offset = list->window_offset, .window = list->window_size});
        *out = base + list->window_offset;
    } else {
        remove_parts(base, base + size);
        munmap(base, size);
    }
    spans_unlock();
    return result;
}

API(zeMemOpenIpcHandle, void *c, void *d, ze_ipc_mem_handle_t in, uint32_t flags, void **out)
{
    struct handle handle;
    struct list *list;
    uint32_t result;
    int fd;

    (void)c;
    (void)d;
    (void)flags;
    memcpy(&handle, &in, sizeof(handle));
    fd = memcmp(handle.magic, "range 1", 8) == 0 ? open_theirs(handle.pid, handle.fd) : -1;
    if (fd < 0)
        return INVALID_ARGUMENT;
    list = read_list(fd);
    close(fd);
    if (!list)
        return INVALID_ARGUMENT;
    result = map_list(&handle, list, out);
    free(list);
    return result;
}

API(zeMemCloseIpcHandle, void *c, const void *at)
{
    const struct span *span;

    (void)c;
    spans_lock();
    span = span_at(IMPORTED, at);
    if (span)
        remove_parts(span->start, span->start + span->size);
    spans_unlock();
    return drop(IMPORTED, at);
}

API(zeMemGetIpcHandle, void *c, const void *ptr, ze_ipc_mem_handle_t *out)
{
    (void)c;
    (void)ptr;
    (void)out;
    return UNSUPPORTED_FEATURE;
}

TABLE(zeGetMemProcAddrTable, {0, 0x10000, zeMemAllocShared}, {1, 0x10000, zeMemAllocDevice},
      {2, 0x10000, zeMemAllocHost}, {3, 0x10000, zeMemFree}, {5, 0x10000, zeMemGetAddressRange},
      {6, 0x10000, zeMemGetIpcHandle}, {7, 0x10000, zeMemOpenIpcHandle}, {8, 0x10000, zeMemCloseIpcHandle},
      {9, 0x10003, zeMemFreeExt}, {10, 0x10006, zeMemPutIpcHandle}, {12, 0x1000f, zeMemGetIpcHandleWithProperties})
