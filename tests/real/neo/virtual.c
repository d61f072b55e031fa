#include "neo.h"

#include <stdio.h>

size_t physical_page(struct gpu *gpu, unsigned int device, size_t size)
{
    size_t page;
    MUST(zeVirtualMemQueryPageSize(gpu->context, gpu->devices[device], size, &page));
    return page;
}

ze_physical_mem_handle_t physical_create(struct gpu *gpu, unsigned int device, size_t size)
{
    ze_physical_mem_handle_t object;
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = size};
    MUST(zePhysicalMemCreate(gpu->context, gpu->devices[device], &desc, &object));
    return object;
}

struct range range_reserve(struct gpu *gpu, size_t size)
{
    struct range range = {.size = size};
    MUST(zeVirtualMemReserve(gpu->context, NULL, size, &range.base));
    return range;
}

void range_map(struct gpu *gpu, void *at, size_t size, ze_physical_mem_handle_t object, size_t offset)
{
    ze_memory_access_attribute_t access;
    size_t length;
    MUST(zeVirtualMemMap(gpu->context, at, size, object, offset, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    MUST(zeVirtualMemGetAccessAttribute(gpu->context, at, size, &access, &length));
    if (access != ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE || length < size) {
        fprintf(stderr, "mapping of 0x%zx bytes: access %d over 0x%zx\n", size, (int)access, length);
        gpu->bad++;
    }
}

void range_unmap(struct gpu *gpu, void *at, size_t size)
{
    MUST(zeVirtualMemUnmap(gpu->context, at, size));
}

void range_free(struct gpu *gpu, struct range range)
{
    MUST(zeVirtualMemFree(gpu->context, range.base, range.size));
}

/* Three objects, mapped from an offset and out of order into one range; then each looked at alone, at another address.
 */
void case_vmm(struct gpu *gpu)
{
    size_t page = physical_page(gpu, 0, 2 * MIB);
    const size_t sizes[3] = {2 * page, 3 * page, page};
    const struct {
        int object;
        size_t offset, size;
    } parts[3] = {{1, page, 2 * page}, {0, page, page}, {2, 0, page}};
    ze_physical_mem_handle_t objects[3];
    for (int i = 0; i < 3; i++)
        objects[i] = physical_create(gpu, 0, sizes[i]);

    struct range alone = range_reserve(gpu, 3 * page);
    for (int i = 0; i < 3; i++) {
        range_map(gpu, alone.base, sizes[i], objects[i], 0);
        gpu_fill(gpu, 0, alone.base, &(uint8_t){0x11}, 1, sizes[i]);
        range_unmap(gpu, alone.base, sizes[i]);
    }

    struct range window = range_reserve(gpu, 4 * page);
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        range_map(gpu, (char *)window.base + at, parts[i].size, objects[parts[i].object], parts[i].offset);
        at += parts[i].size;
    }
    pattern_write(gpu, 0, window.base, 4 * page, 7);
    pattern_check(gpu, 0, window.base, 4 * page, 7, 0, "the whole window");
    at = 0;
    for (int i = 0; i < 3; i++) {
        range_unmap(gpu, (char *)window.base + at, parts[i].size);
        at += parts[i].size;
    }

    at = 0;
    for (int i = 0; i < 3; i++) {
        size_t size = sizes[parts[i].object], offset = parts[i].offset, end = offset + parts[i].size;
        range_map(gpu, alone.base, size, objects[parts[i].object], 0);
        if (offset)
            value_check(gpu, 0, alone.base, offset, 0x11, "an object before its mapped part");
        pattern_check(gpu, 0, (char *)alone.base + offset, parts[i].size, 7, at, "the mapped part of an object");
        if (end < size)
            value_check(gpu, 0, (char *)alone.base + end, size - end, 0x11, "an object after its mapped part");
        range_unmap(gpu, alone.base, size);
        at += parts[i].size;
    }
    for (int i = 0; i < 3; i++)
        MUST(zePhysicalMemDestroy(gpu->context, objects[i]));
    range_free(gpu, window);
    range_free(gpu, alone);
}
