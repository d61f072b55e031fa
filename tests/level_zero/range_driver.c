/*
 * A Level Zero driver over host memory that has ZE_extension_ipc_phys_mem_handle_range, as the specification's text
 * says it. Physical memory is a memfd, a mapping is an mmap() of it, a GPU address is a CPU address, commands are
 * done when they are appended. The real loader takes it through ZE_ENABLE_ALT_DRIVERS; and as it exports the API's own
 * names too, it can stand in the place of a loader.
 *
 * $ZE_TEST_MAX_PARTS bounds the parts of a range, $ZE_TEST_NO_RANGE takes the extension away, $ZE_TEST_TILES is the
 * number of sub-devices. Memory is in range_memory.c, the extension in range_ipc.c.
 */
#include "range_driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { DEVICES = 2 };

/* Raw handles of this driver begin with four words: loaders that wrap nothing look for tables there. */
static void *driver[4], *devices[DEVICES][4], *queue[4], *commands[4];

struct context {
    void *tables[4];
    uint64_t magic;
};

static const uint64_t CONTEXT_MAGIC = 0x7a65636f6e746578;

/* ---- drivers and devices ---- */

static uint32_t one(uint32_t *count, void **handles, void *what)
{
    if (*count && handles)
        handles[0] = what;
    *count = 1;
    return SUCCESS;
}

static bool is_device(const void *handle)
{
    return handle == devices[0] || handle == devices[1];
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
    for (uint32_t i = 0; handles && i < *count && i < DEVICES; i++)
        handles[i] = devices[i];
    *count = DEVICES;
    return SUCCESS;
}

API(zeDeviceGetSubDevices, void *handle, uint32_t *count, void **handles)
{
    (void)handle;
    (void)handles;
    *count = getenv("ZE_TEST_TILES") ? (uint32_t)atoi(getenv("ZE_TEST_TILES")) : 0;
    return SUCCESS;
}

API(zeDeviceGetProperties, void *handle, ze_device_properties_t *properties)
{
    if (!is_device(handle))
        return INVALID_NULL_HANDLE;
    properties->type = ZE_DEVICE_TYPE_GPU;
    properties->vendorId = 0x8086;
    properties->flags = ZE_DEVICE_PROPERTY_FLAG_INTEGRATED;
    memcpy(properties->uuid.id, "a test driver", 14);
    properties->uuid.id[15] = handle == devices[1];
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
    /* Each its own: a loader that wraps handles keeps one wrapper a handle. */
    *out = calloc(1, sizeof(struct context));
    if (!*out)
        return OUT_OF_HOST_MEMORY;
    ((struct context *)*out)->magic = CONTEXT_MAGIC;
    return SUCCESS;
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

bool is_context(const void *handle)
{
    return handle && ((const struct context *)handle)->magic == CONTEXT_MAGIC;
}

API(zeContextDestroy, void *handle)
{
    if (!is_context(handle))
        return INVALID_NULL_HANDLE;
    free(handle);
    return SUCCESS;
}

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
