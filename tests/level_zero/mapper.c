/*
 * A library that knows nothing of ze_ipc: it maps memory through the loader, in a context of its own, as SYCL or
 * PyTorch do. 0 is success and an address 0 a failure; failures are said on stderr. One mapper a process; ranges may be
 * made from several threads at once.
 */
#include "ze_table.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        ze_result_t result_ = (call);                                                                                  \
        if (result_ != ZE_RESULT_SUCCESS) {                                                                            \
            fprintf(stderr, "%s: %#x\n", #call, result_);                                                              \
            return -1;                                                                                                 \
        }                                                                                                              \
    } while (0)

enum { MOST_DEVICES = 8, MOST_RANGES = 64, MOST_GROUPS = 16 };

struct range {
    char *start;
    size_t reserved, size, offset;
    uint32_t count;
    ze_physical_mem_handle_t *objects;
};

static struct ze_table ze;
static ze_device_handle_t devices[MOST_DEVICES];
static ze_context_handle_t context;
static ze_command_queue_handle_t queue;
static ze_command_list_handle_t list;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range ranges[MOST_RANGES];
static int churning;
static pthread_t threads[2];

static int copying_group(ze_device_handle_t device, uint32_t *ordinal)
{
    ze_command_queue_group_properties_t rows[MOST_GROUPS] = {0};
    uint32_t count = MOST_GROUPS;

    for (int i = 0; i < MOST_GROUPS; i++)
        rows[i].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    TRY(ze.DeviceGetCommandQueueGroupProperties(device, &count, rows));
    for (*ordinal = 0; *ordinal < count; ++*ordinal) {
        if ((rows[*ordinal].flags & 3) == ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY)
            return 0;
    }
    return -1;
}

EXPORT int mapper_open(const char *loader)
{
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_command_queue_desc_t queue_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .mode = 2};
    ze_command_list_desc_t list_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    uint32_t drivers = 1, count = MOST_DEVICES;
    ze_driver_handle_t driver;
    char error[256];

    if (ze_table_open(&ze, loader, error, sizeof(error)) < 0) {
        fprintf(stderr, "%s\n", error);
        return -1;
    }
    TRY(ze.Init(ZE_INIT_FLAG_GPU_ONLY));
    TRY(ze.DriverGet(&drivers, &driver));
    TRY(ze.DeviceGet(driver, &count, devices));
    TRY(ze.ContextCreate(driver, &desc, &context));
    if (copying_group(devices[0], &queue_desc.ordinal) < 0)
        return -1;
    list_desc.commandQueueGroupOrdinal = queue_desc.ordinal;
    TRY(ze.CommandQueueCreate(context, devices[0], &queue_desc, &queue));
    TRY(ze.CommandListCreate(context, devices[0], &list_desc, &list));
    return 0;
}

EXPORT int mapper_close(void)
{
    TRY(ze.CommandListDestroy(list));
    TRY(ze.CommandQueueDestroy(queue));
    TRY(ze.ContextDestroy(context));
    return 0;
}

static int run_list(void)
{
    TRY(ze.CommandListClose(list));
    TRY(ze.CommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    TRY(ze.CommandQueueSynchronize(queue, UINT64_MAX));
    TRY(ze.CommandListReset(list));
    return 0;
}

EXPORT int mapper_fill(uint64_t address, uint8_t value, size_t size)
{
    TRY(ze.CommandListAppendMemoryFill(list, (void *)address, &value, 1, size, NULL, 0, NULL));
    return run_list();
}

EXPORT int mapper_read(uint64_t address, void *out, size_t size)
{
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void *staging;

    TRY(ze.MemAllocHost(context, &desc, size, 64, &staging));
    TRY(ze.CommandListAppendMemoryCopy(list, staging, (void *)address, size, NULL, 0, NULL));
    if (run_list() < 0)
        return -1;
    memcpy(out, staging, size);
    TRY(ze.MemFree(context, staging));
    return 0;
}

static struct range *find(const char *start)
{
    struct range *range = ranges;

    while (range < ranges + MOST_RANGES && range->start != start)
        range++;
    return range < ranges + MOST_RANGES ? range : NULL;
}

static int make(struct range *range, int device)
{
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC,
                                   .flags = ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_DEVICE,
                                   .size = range->size + range->offset};
    void *start;

    TRY(ze.VirtualMemReserve(context, NULL, range->reserved, &start));
    for (uint32_t i = 0; i < range->count; i++) {
        TRY(ze.PhysicalMemCreate(context, devices[device], &desc, &range->objects[i]));
        TRY(ze.VirtualMemMap(context, (char *)start + i * range->size, range->size, range->objects[i], range->offset,
                             ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    }
    range->start = start;
    return 0;
}

/* A reservation with objects back to back in it, each mapped from its offset on. */
EXPORT uint64_t mapper_map(int device, uint32_t count, size_t size, size_t offset, size_t reserved)
{
    struct range range = {.reserved = reserved, .size = size, .offset = offset, .count = count};
    struct range *place;

    range.objects = calloc(count, sizeof(*range.objects));
    if (!range.objects || make(&range, device) < 0)
        return 0;
    pthread_mutex_lock(&lock);
    place = find(NULL);
    if (place)
        *place = range;
    pthread_mutex_unlock(&lock);
    return place ? (uint64_t)(uintptr_t)range.start : 0;
}

static struct range *locked_find(uint64_t address)
{
    struct range *range;

    pthread_mutex_lock(&lock);
    range = find((char *)(uintptr_t)address);
    pthread_mutex_unlock(&lock);
    return range;
}

static int drop(const struct range *range, uint32_t index)
{
    if (!range->objects[index])
        return 0;
    /* Intel's driver 26.27 cannot undo a mapping with an offset; a change of access maps it anew, without one. */
    for (uint32_t access = 2; range->offset && access; access--)
        TRY(ze.VirtualMemSetAccessAttribute(context, range->start + index * range->size, range->size, access));
    TRY(ze.VirtualMemUnmap(context, range->start + index * range->size, range->size));
    TRY(ze.PhysicalMemDestroy(context, range->objects[index]));
    range->objects[index] = NULL;
    return 0;
}

/* Takes one object away from its range. */
EXPORT int mapper_drop(uint64_t address, uint32_t index)
{
    return drop(locked_find(address), index);
}

EXPORT int mapper_unmap(uint64_t address)
{
    struct range *place = locked_find(address), range = *place;

    for (uint32_t i = 0; i < range.count; i++) {
        if (drop(&range, i) < 0)
            return -1;
    }
    /* Before the driver may give the same addresses to another thread. */
    pthread_mutex_lock(&lock);
    *place = (struct range){0};
    pthread_mutex_unlock(&lock);
    free(range.objects);
    TRY(ze.VirtualMemFree(context, range.start, range.reserved));
    return 0;
}

/* The descriptor that the driver keeps for an object; its own. */
EXPORT int mapper_descriptor(uint64_t address, uint32_t index)
{
    ze_external_memory_export_fd_t export = {
        .stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, .fd = -1};
    ze_physical_mem_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES, .pNext = &export};

    if (!ze.PhysicalMemGetProperties)
        return -1;
    TRY(ze.PhysicalMemGetProperties(context, locked_find(address)->objects[index], &properties));
    return export.fd;
}

EXPORT int mapper_protect(uint64_t address, size_t size)
{
    TRY(ze.VirtualMemSetAccessAttribute(context, (void *)address, size, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));
    return 0;
}

EXPORT uint64_t mapper_allocate(size_t size)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *out;

    if (ze.MemAllocDevice(context, &desc, size, 64, devices[0], &out) != ZE_RESULT_SUCCESS)
        return 0;
    return (uint64_t)(uintptr_t)out;
}

EXPORT int mapper_free(uint64_t address)
{
    TRY(ze.MemFree(context, (void *)address));
    return 0;
}

static void *churn(void *size)
{
    while (__atomic_load_n(&churning, __ATOMIC_SEQ_CST)) {
        uint64_t range = mapper_map(0, 4, *(size_t *)size, 0, 4 * *(size_t *)size);

        if (!range || mapper_unmap(range) < 0)
            return size;
    }
    return NULL;
}

/* Two threads map and unmap ranges until mapper_calm(), which says how many of them failed. */
EXPORT int mapper_churn(size_t size)
{
    static size_t bytes;

    bytes = size;
    churning = 1;
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, churn, &bytes) != 0)
            return -1;
    }
    return 0;
}

EXPORT int mapper_calm(void)
{
    int failed = 0;

    __atomic_store_n(&churning, 0, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 2; i++) {
        void *result;

        pthread_join(threads[i], &result);
        failed += result != NULL;
    }
    return failed;
}
