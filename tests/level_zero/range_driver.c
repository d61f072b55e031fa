/*
 * A Level Zero driver over host memory that has ZE_extension_ipc_phys_mem_handle_range, as the specification's text
 * says it. Physical memory is a memfd, a mapping is an mmap() of it, a GPU address is a CPU address, commands are
 * done when they are appended. The real loader takes it through ZE_ENABLE_ALT_DRIVERS; and as it exports the API's own
 * names too, it can stand in the place of a loader.
 *
 * A handle: magic, pid and the number of a memfd with the list of the range's parts, which an importer opens below
 * /proc. $ZE_TEST_MAX_PARTS bounds the parts; $ZE_TEST_NO_RANGE takes the extension away.
 */
#include "range_driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { PAGE = 4096, MAX_SPANS = 4096, MAX_PARTS = 1024 };

enum kind { UNUSED, RESERVED, MAPPED, USM, IMPORTED };

struct physical {
    int fd;
    size_t size;
};

struct span {
    enum kind kind;
    char *start;
    size_t size;
    struct physical *physical;
    size_t offset;
};

struct part {
    int32_t fd;
    uint32_t zero;
    uint64_t offset;
    uint64_t size;
};

struct list {
    uint64_t window_offset;
    uint64_t window_size;
    uint64_t count;
    struct part parts[MAX_PARTS];
};

struct handle {
    char magic[8];
    int32_t pid;
    int32_t fd;
    char rest[48];
};

static struct span spans[MAX_SPANS];
/* Raw handles of this driver begin with four words: loaders that wrap nothing look for tables there. */
static void *driver[4], *device[4], *context[4], *queue[4], *commands[4];

static struct span *find(enum kind kind, const char *at)
{
    for (int i = 0; i < MAX_SPANS; i++) {
        if (spans[i].kind == kind && at >= spans[i].start && at < spans[i].start + spans[i].size)
            return &spans[i];
    }
    return NULL;
}

static struct span *add(enum kind kind, char *start, size_t size)
{
    for (int i = 0; i < MAX_SPANS; i++) {
        if (spans[i].kind == UNUSED) {
            spans[i] = (struct span){.kind = kind, .start = start, .size = size};
            return &spans[i];
        }
    }
    abort();
}

/* ---- drivers and devices ---- */

static uint32_t one(uint32_t *count, void **handles, void *what)
{
    if (*count && handles)
        handles[0] = what;
    *count = 1;
    return SUCCESS;
}

API(zeInit, uint32_t flags)
{
    return flags > 2 ? INVALID_ENUMERATION : SUCCESS;
}

API(zeInitDrivers, uint32_t *count, void **handles, void *desc)
{
    (void)desc;
    return one(count, handles, driver);
}

API(zeDriverGet, uint32_t *count, void **handles)
{
    return one(count, handles, driver);
}

API(zeDriverGetApiVersion, void *handle, uint32_t *version)
{
    (void)handle;
    *version = 0x10012;
    return SUCCESS;
}

API(zeDriverGetProperties, void *handle, ze_driver_properties_t *properties)
{
    (void)handle;
    properties->driverVersion = 1;
    return SUCCESS;
}

API(zeDriverGetExtensionProperties, void *handle, uint32_t *count, ze_driver_extension_properties_t *rows)
{
    uint32_t have = getenv("ZE_TEST_NO_RANGE") ? 0 : 1;

    (void)handle;
    if (*count && rows && have) {
        strcpy(rows[0].name, "ZE_extension_ipc_phys_mem_handle_range");
        rows[0].version = 0x10000;
    }
    *count = have;
    return SUCCESS;
}

API(zeDeviceGet, void *handle, uint32_t *count, void **handles)
{
    (void)handle;
    return one(count, handles, device);
}

API(zeDeviceGetSubDevices, void *handle, uint32_t *count, void **handles)
{
    (void)handle;
    (void)handles;
    *count = 0;
    return SUCCESS;
}

API(zeDeviceGetProperties, void *handle, ze_device_properties_t *properties)
{
    (void)handle;
    properties->type = ZE_DEVICE_TYPE_GPU;
    properties->vendorId = 0x8086;
    properties->flags = ZE_DEVICE_PROPERTY_FLAG_INTEGRATED;
    memcpy(properties->uuid.id, "the test driver", 16);
    strcpy(properties->name, "range test driver");
    return SUCCESS;
}

API(zeDeviceGetCommandQueueGroupProperties, void *handle, uint32_t *count, ze_command_queue_group_properties_t *rows)
{
    (void)handle;
    if (*count && rows) {
        rows[0].flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
        rows[0].maxMemoryFillPatternSize = 16;
        rows[0].numQueues = 1;
    }
    *count = 1;
    return SUCCESS;
}

/* ---- contexts, queues, lists ---- */

static uint32_t give(void **out, void *what)
{
    *out = what;
    return SUCCESS;
}

API(zeContextCreate, void *handle, const void *desc, void **out)
{
    (void)handle;
    (void)desc;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    return give(out, context);
}

API(zeCommandQueueCreate, void *c, void *d, const void *desc, void **out)
{
    (void)c;
    (void)d;
    (void)desc;
    return give(out, queue);
}

API(zeCommandListCreate, void *c, void *d, const void *desc, void **out)
{
    (void)c;
    (void)d;
    (void)desc;
    return give(out, commands);
}

#define NOTHING(name)                                                                                                  \
    API(name, void *handle)                                                                                            \
    {                                                                                                                  \
        return handle ? SUCCESS : INVALID_NULL_HANDLE;                                                                 \
    }

NOTHING(zeContextDestroy)
NOTHING(zeCommandQueueDestroy)
NOTHING(zeCommandListDestroy)
NOTHING(zeCommandListClose)
NOTHING(zeCommandListReset)

API(zeCommandQueueExecuteCommandLists, void *handle, uint32_t count, void **lists, void *fence)
{
    (void)fence;
    return handle && count && lists ? SUCCESS : INVALID_NULL_HANDLE;
}

API(zeCommandQueueSynchronize, void *handle, uint64_t timeout)
{
    (void)timeout;
    return handle ? SUCCESS : INVALID_NULL_HANDLE;
}

API(zeCommandListAppendMemoryCopy, void *list, void *to, const void *from, size_t size, void *signal, uint32_t count,
    void **waits)
{
    (void)list;
    (void)signal;
    (void)count;
    (void)waits;
    memmove(to, from, size);
    return SUCCESS;
}

API(zeCommandListAppendMemoryFill, void *list, void *to, const void *pattern, size_t length, size_t size, void *signal,
    uint32_t count, void **waits)
{
    (void)list;
    (void)signal;
    (void)count;
    (void)waits;
    for (size_t i = 0; i < size; i++)
        ((char *)to)[i] = ((const char *)pattern)[i % length];
    return SUCCESS;
}

/* ---- memory ---- */

static uint32_t allocate(size_t size, void **out)
{
    size_t whole = (size + PAGE - 1) / PAGE * PAGE;

    *out = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*out == MAP_FAILED)
        return OUT_OF_HOST_MEMORY;
    add(USM, *out, whole);
    return SUCCESS;
}

API(zeMemAllocHost, void *c, const void *desc, size_t size, size_t alignment, void **out)
{
    (void)c;
    (void)desc;
    (void)alignment;
    return allocate(size, out);
}

API(zeMemAllocDevice, void *c, const void *desc, size_t size, size_t alignment, void *d, void **out)
{
    (void)d;
    return zeMemAllocHost(c, desc, size, alignment, out);
}

API(zeMemAllocShared, void *c, const void *desc, const void *host, size_t size, size_t alignment, void *d, void **out)
{
    (void)host;
    return zeMemAllocDevice(c, desc, size, alignment, d, out);
}

static uint32_t drop(enum kind kind, const void *at)
{
    struct span *span = find(kind, at);

    if (!span)
        return INVALID_ARGUMENT;
    munmap(span->start, span->size);
    span->kind = UNUSED;
    return SUCCESS;
}

API(zeMemFree, void *c, void *at)
{
    (void)c;
    return drop(USM, at);
}

API(zePhysicalMemCreate, void *c, void *d, const ze_physical_mem_desc_t *desc, void **out)
{
    struct physical *physical;

    (void)c;
    (void)d;
    if (desc->pNext)
        return INVALID_ENUMERATION;
    physical = calloc(1, sizeof(*physical));
    physical->fd = memfd_create("range-driver", MFD_CLOEXEC);
    physical->size = desc->size;
    if (physical->fd < 0 || ftruncate(physical->fd, (off_t)desc->size) < 0)
        return OUT_OF_HOST_MEMORY;
    return give(out, physical);
}

API(zePhysicalMemDestroy, void *c, void *handle)
{
    struct physical *physical = handle;

    (void)c;
    close(physical->fd);
    free(physical);
    return SUCCESS;
}

API(zeVirtualMemReserve, void *c, const void *wish, size_t size, void **out)
{
    (void)c;
    *out = mmap((void *)wish, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*out == MAP_FAILED)
        return OUT_OF_DEVICE_MEMORY;
    add(RESERVED, *out, size);
    return SUCCESS;
}

API(zeVirtualMemFree, void *c, const void *at, size_t size)
{
    (void)c;
    (void)size;
    return drop(RESERVED, at);
}

API(zeVirtualMemQueryPageSize, void *c, void *d, size_t size, size_t *page)
{
    (void)c;
    (void)d;
    (void)size;
    *page = PAGE;
    return SUCCESS;
}

API(zeVirtualMemMap, void *c, const void *at, size_t size, void *handle, size_t offset, uint32_t access)
{
    int prot = PROT_READ | (access == ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE ? PROT_WRITE : 0);
    struct physical *physical = handle;
    struct span *span;

    (void)c;
    if (offset + size > physical->size || !find(RESERVED, at) || find(MAPPED, at))
        return INVALID_ARGUMENT;
    if (mmap((void *)at, size, prot, MAP_SHARED | MAP_FIXED, physical->fd, (off_t)offset) == MAP_FAILED)
        return OUT_OF_DEVICE_MEMORY;
    span = add(MAPPED, (char *)at, size);
    span->physical = physical;
    span->offset = offset;
    return SUCCESS;
}

API(zeVirtualMemUnmap, void *c, const void *at, size_t size)
{
    struct span *span = find(MAPPED, at);

    (void)c;
    if (!span || span->start != at || span->size != size)
        return INVALID_ARGUMENT;
    mmap((void *)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    span->kind = UNUSED;
    return SUCCESS;
}

API(zeVirtualMemSetAccessAttribute, void *c, const void *at, size_t size, uint32_t access)
{
    (void)c;
    (void)at;
    (void)size;
    return access ? SUCCESS : INVALID_ENUMERATION;
}

API(zeMemGetAddressRange, void *c, const void *at, void **base, size_t *size)
{
    static const enum kind kinds[] = {IMPORTED, USM, MAPPED};

    (void)c;
    for (int i = 0; i < 3; i++) {
        const struct span *span = find(kinds[i], at);

        if (!span)
            continue;
        /* Of an import the window, not its pages. */
        *base = span->start + (kinds[i] == IMPORTED ? span->offset : 0);
        *size = kinds[i] == IMPORTED ? (size_t)(uintptr_t)span->physical : span->size;
        return SUCCESS;
    }
    return ADDRESS_NOT_FOUND;
}

/* ---- the extension ---- */

static uint32_t collect(char *start, char *end, struct list *list)
{
    const char *limit = getenv("ZE_TEST_MAX_PARTS");
    uint64_t most = limit ? strtoull(limit, NULL, 10) : MAX_PARTS;

    for (char *at = start; at < end; at += PAGE) {
        if (find(USM, at))
            return INVALID_ARGUMENT;
    }
    for (char *at = start; at < end;) {
        const struct span *span = find(MAPPED, at);
        char *last;

        if (!span)
            return ADDRESS_NOT_FOUND;
        if (list->count == most)
            return UNSUPPORTED_SIZE;
        last = span->start + span->size < end ? span->start + span->size : end;
        list->parts[list->count++] = (struct part){.fd = fcntl(span->physical->fd, F_DUPFD_CLOEXEC, 64),
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

API(zeMemGetIpcHandleWithProperties, void *c, const void *ptr, void *next, ze_ipc_mem_handle_t *out)
{
    const ze_ipc_phys_mem_handle_range_ext_desc_t *range = NULL;
    struct handle handle = {.magic = "range 1", .pid = getpid()};
    struct list list = {0};
    char *start = (char *)((uintptr_t)ptr / PAGE * PAGE), *end;
    uint32_t result;

    if (c != context)
        return INVALID_NULL_HANDLE;
    for (const ze_ipc_phys_mem_handle_range_ext_desc_t *entry = next; entry; entry = entry->pNext) {
        if (entry->stype == ZE_STRUCTURE_TYPE_IPC_PHYS_MEM_HANDLE_RANGE_EXT_DESC)
            range = entry;
        else if (entry->stype != ZE_STRUCTURE_TYPE_IPC_MEM_HANDLE_TYPE_EXT_DESC)
            return INVALID_ENUMERATION;
    }
    if (!range || getenv("ZE_TEST_NO_RANGE"))
        return UNSUPPORTED_FEATURE;
    if (range->size == 0)
        return INVALID_SIZE;
    if (!ptr)
        return INVALID_NULL_POINTER;
    end = (char *)(((uintptr_t)ptr + range->size + PAGE - 1) / PAGE * PAGE);
    list.window_offset = (uint64_t)((const char *)ptr - start);
    list.window_size = range->size;
    result = collect(start, end, &list);
    handle.fd = result == SUCCESS ? memfd_create("range-list", MFD_CLOEXEC) : -1;
    if (result == SUCCESS && write(handle.fd, &list, sizeof(list)) != sizeof(list))
        result = OUT_OF_HOST_MEMORY;
    if (result != SUCCESS)
        forget(&list);
    memcpy(out, &handle, sizeof(handle));
    return result;
}

API(zeMemPutIpcHandle, void *c, ze_ipc_mem_handle_t in)
{
    struct handle handle;
    struct list list;

    if (c != context)
        return INVALID_NULL_HANDLE;
    memcpy(&handle, &in, sizeof(handle));
    if (memcmp(handle.magic, "range 1", 8) != 0 || handle.pid != getpid() ||
        pread(handle.fd, &list, sizeof(list), 0) != sizeof(list))
        return INVALID_ARGUMENT;
    forget(&list);
    close(handle.fd);
    return SUCCESS;
}

static int open_theirs(int pid, int fd)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static uint32_t map_parts(const struct handle *handle, const struct list *list, char *at)
{
    for (uint64_t i = 0; i < list->count; i++) {
        const struct part *part = &list->parts[i];
        int fd = open_theirs(handle->pid, part->fd);
        void *view = MAP_FAILED;

        if (fd >= 0) {
            view = mmap(at, part->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)part->offset);
            close(fd);
        }
        if (view == MAP_FAILED)
            return INVALID_ARGUMENT;
        at += part->size;
    }
    return SUCCESS;
}

API(zeMemOpenIpcHandle, void *c, void *d, ze_ipc_mem_handle_t in, uint32_t flags, void **out)
{
    struct handle handle;
    struct list list;
    struct span *span;
    uint64_t size = 0;
    ssize_t got;
    char *base;
    int fd;

    (void)c;
    (void)d;
    (void)flags;
    memcpy(&handle, &in, sizeof(handle));
    fd = memcmp(handle.magic, "range 1", 8) == 0 ? open_theirs(handle.pid, handle.fd) : -1;
    if (fd < 0)
        return INVALID_ARGUMENT;
    got = pread(fd, &list, sizeof(list), 0);
    close(fd);
    if (got != sizeof(list))
        return INVALID_ARGUMENT;
    for (uint64_t i = 0; i < list.count; i++)
        size += list.parts[i].size;
    base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return OUT_OF_DEVICE_MEMORY;
    if (map_parts(&handle, &list, base) != SUCCESS) {
        munmap(base, size);
        return INVALID_ARGUMENT;
    }
    span = add(IMPORTED, base, size);
    span->offset = list.window_offset;
    span->physical = (void *)(uintptr_t)list.window_size;
    *out = base + list.window_offset;
    return SUCCESS;
}

API(zeMemCloseIpcHandle, void *c, const void *at)
{
    (void)c;
    return drop(IMPORTED, at);
}

/* ---- what a loader asks a driver for ---- */

TABLE(zeGetGlobalProcAddrTable, {0, 0x10000, zeInit}, {1, 0x1000a, zeInitDrivers})
TABLE(zeGetDriverProcAddrTable, {0, 0x10000, zeDriverGet}, {1, 0x10000, zeDriverGetApiVersion},
      {2, 0x10000, zeDriverGetProperties}, {4, 0x10000, zeDriverGetExtensionProperties})
TABLE(zeGetDeviceProcAddrTable, {0, 0x10000, zeDeviceGet}, {1, 0x10000, zeDeviceGetSubDevices},
      {2, 0x10000, zeDeviceGetProperties}, {5, 0x10000, zeDeviceGetCommandQueueGroupProperties})
TABLE(zeGetContextProcAddrTable, {0, 0x10000, zeContextCreate}, {1, 0x10000, zeContextDestroy})
TABLE(zeGetCommandQueueProcAddrTable, {0, 0x10000, zeCommandQueueCreate}, {1, 0x10000, zeCommandQueueDestroy},
      {2, 0x10000, zeCommandQueueExecuteCommandLists}, {3, 0x10000, zeCommandQueueSynchronize})
TABLE(zeGetCommandListProcAddrTable, {0, 0x10000, zeCommandListCreate}, {2, 0x10000, zeCommandListDestroy},
      {3, 0x10000, zeCommandListClose}, {4, 0x10000, zeCommandListReset}, {8, 0x10000, zeCommandListAppendMemoryCopy},
      {9, 0x10000, zeCommandListAppendMemoryFill})
TABLE(zeGetMemProcAddrTable, {0, 0x10000, zeMemAllocShared}, {1, 0x10000, zeMemAllocDevice},
      {2, 0x10000, zeMemAllocHost}, {3, 0x10000, zeMemFree}, {5, 0x10000, zeMemGetAddressRange},
      {7, 0x10000, zeMemOpenIpcHandle}, {8, 0x10000, zeMemCloseIpcHandle}, {10, 0x10006, zeMemPutIpcHandle},
      {12, 0x1000f, zeMemGetIpcHandleWithProperties})
TABLE(zeGetPhysicalMemProcAddrTable, {0, 0x10000, zePhysicalMemCreate}, {1, 0x10000, zePhysicalMemDestroy})
TABLE(zeGetVirtualMemProcAddrTable, {0, 0x10000, zeVirtualMemReserve}, {1, 0x10000, zeVirtualMemFree},
      {2, 0x10000, zeVirtualMemQueryPageSize}, {3, 0x10000, zeVirtualMemMap}, {4, 0x10000, zeVirtualMemUnmap},
      {5, 0x10000, zeVirtualMemSetAccessAttribute})
