#include "neo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void must(ze_result_t result, const char *call, const char *file, int line)
{
    if (result == ZE_RESULT_SUCCESS)
        return;
    fprintf(stderr, "%s:%d: %s: 0x%x\n", file, line, call, (unsigned int)result);
    exit(BROKEN);
}

/* The queue group that copies and does not compute: no kernel is ever compiled for it. */
static uint32_t copy_ordinal(struct gpu *gpu, ze_device_handle_t device)
{
    ze_command_queue_group_properties_t groups[16];
    uint32_t count = 16;
    for (size_t i = 0; i < 16; i++)
        groups[i] = (ze_command_queue_group_properties_t){.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES};
    MUST(zeDeviceGetCommandQueueGroupProperties(device, &count, groups));
    for (uint32_t i = 0; i < count; i++) {
        ze_command_queue_group_property_flags_t flags = groups[i].flags;
        if ((flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY) &&
            !(flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE)) {
            gpu->max_pattern = groups[i].maxMemoryFillPatternSize;
            return i;
        }
    }
    fprintf(stderr, "no copy engine\n");
    exit(BROKEN);
}

void gpu_open(struct gpu *gpu, bool sabotage)
{
    memset(gpu, 0, sizeof(*gpu));
    gpu->sabotage = sabotage;
    ze_init_driver_type_desc_t type = {.stype = ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC,
                                       .flags = ZE_INIT_DRIVER_TYPE_FLAG_GPU};
    uint32_t drivers = 1;
    MUST(zeInitDrivers(&drivers, &gpu->driver, &type));
    ze_context_desc_t context = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    MUST(zeContextCreate(gpu->driver, &context, &gpu->context));
    gpu->count = MAX_DEVICES;
    MUST(zeDeviceGet(gpu->driver, &gpu->count, gpu->devices));
    for (uint32_t i = 0; i < gpu->count; i++) {
        ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                         .ordinal = copy_ordinal(gpu, gpu->devices[i]),
                                         .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
        MUST(zeCommandListCreateImmediate(gpu->context, gpu->devices[i], &queue, &gpu->copy_lists[i]));
    }
}

void gpu_copy(struct gpu *gpu, unsigned int device, void *to, const void *from, size_t size)
{
    if (!gpu->sabotage)
        MUST(zeCommandListAppendMemoryCopy(gpu->copy_lists[device], to, from, size, NULL, 0, NULL));
}

void gpu_fill(struct gpu *gpu, unsigned int device, void *to, const void *pattern, size_t pattern_size, size_t size)
{
    if (!gpu->sabotage)
        MUST(zeCommandListAppendMemoryFill(gpu->copy_lists[device], to, pattern, pattern_size, size, NULL, 0, NULL));
}

void *gpu_host(struct gpu *gpu, size_t size)
{
    void *pointer;
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    MUST(zeMemAllocHost(gpu->context, &desc, size, 0, &pointer));
    return pointer;
}

void *gpu_device(struct gpu *gpu, unsigned int device, size_t size)
{
    void *pointer;
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    MUST(zeMemAllocDevice(gpu->context, &desc, size, 0, gpu->devices[device], &pointer));
    return pointer;
}

void *gpu_shared(struct gpu *gpu, unsigned int device, size_t size)
{
    void *pointer;
    ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t on_host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    MUST(zeMemAllocShared(gpu->context, &on_device, &on_host, size, 0, gpu->devices[device], &pointer));
    return pointer;
}

void gpu_free(struct gpu *gpu, void *pointer)
{
    MUST(zeMemFree(gpu->context, pointer));
}
