#include "neo.h"

#include <stdio.h>
#include <stdlib.h>

#define SEED 7
#define UNTOUCHED 0x11

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

static void whole_value(struct gpu *gpu, struct range window, ze_physical_mem_handle_t object, size_t size)
{
    range_map(gpu, window.base, size, object, 0);
    gpu_fill(gpu, 0, window.base, &(uint8_t){UNTOUCHED}, 1, size);
    range_unmap(gpu, window.base, size);
}

/* Another process looks at the whole object: `size` bytes, of which `part` bytes from `offset` hold the pattern from
 * `place` on, and the rest is untouched. */
static void check_object(struct gpu *gpu, ze_physical_mem_handle_t object, size_t size, size_t offset, size_t part,
                         size_t place)
{
    ze_ipc_mem_handle_t handle;
    char text[2 * sizeof(handle) + 1], numbers[4][32];
    const size_t values[4] = {size, offset, part, place};
    MUST(zeMemGetIpcHandle(gpu->context, object, &handle));
    hex_encode(text, handle.data, sizeof(handle));
    for (int i = 0; i < 4; i++)
        snprintf(numbers[i], sizeof(numbers[i]), "%zu", values[i]);
    child_run(gpu, (char *[]){"vmm-child", text, numbers[0], numbers[1], numbers[2], numbers[3], NULL});
    MUST(zeMemPutIpcHandle(gpu->context, handle));
}

void vmm_child(struct gpu *gpu, char *const arguments[])
{
    ze_ipc_mem_handle_t handle;
    size_t values[4];
    char *base;
    hex_decode(handle.data, arguments[0], sizeof(handle));
    for (int i = 0; i < 4; i++)
        values[i] = strtoull(arguments[1 + i], NULL, 10);
    size_t size = values[0], offset = values[1], end = offset + values[2];
    MUST(zeMemOpenIpcHandle(gpu->context, gpu->devices[0], handle, 0, (void **)&base));
    if (offset)
        value_check(gpu, 0, base, offset, UNTOUCHED, "an object before its mapped part");
    pattern_check(gpu, 0, base + offset, values[2], SEED, values[3], "the mapped part of an object");
    if (end < size)
        value_check(gpu, 0, base + end, size - end, UNTOUCHED, "an object after its mapped part");
    MUST(zeMemCloseIpcHandle(gpu->context, base));
}

/* Takes away a mapping that may have an offset. This driver (26.27) leaves the offset in where xe has CPU_ADDR_MIRROR
 * and the kernel refuses that; the driver forgets the mapping all the same, and the page tables keep it. Another object
 * mapped over it and taken away again takes it along. */
static void undo(struct gpu *gpu, void *at, size_t size)
{
    ze_result_t r = zeVirtualMemUnmap(gpu->context, at, size);
    if (r != ZE_RESULT_ERROR_UNKNOWN) {
        MUST(r);
        return;
    }
    ze_physical_mem_handle_t cover = physical_create(gpu, 0, size);
    range_map(gpu, at, size, cover, 0);
    range_unmap(gpu, at, size);
    MUST(zePhysicalMemDestroy(gpu->context, cover));
}

/* Three objects, mapped from an offset and out of order into one range, which is written at once; then another process
 * looks at each of them whole. */
void case_vmm(struct gpu *gpu)
{
    size_t page = physical_page(gpu, 0, 2 * MIB);
    const size_t sizes[3] = {2 * page, 3 * page, page};
    const struct {
        int object;
        size_t offset, size;
    } parts[3] = {{1, page, 2 * page}, {0, page, page}, {2, 0, page}};
    ze_physical_mem_handle_t objects[3];
    struct range window = range_reserve(gpu, 4 * page);
    for (int i = 0; i < 3; i++) {
        objects[i] = physical_create(gpu, 0, sizes[i]);
        whole_value(gpu, window, objects[i], sizes[i]);
    }
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        range_map(gpu, (char *)window.base + at, parts[i].size, objects[parts[i].object], parts[i].offset);
        at += parts[i].size;
    }
    pattern_write(gpu, 0, window.base, 4 * page, SEED);
    pattern_check(gpu, 0, window.base, 4 * page, SEED, 0, "the whole window");
    at = 0;
    for (int i = 0; i < 3; i++) {
        int object = parts[i].object;
        check_object(gpu, objects[object], sizes[object], parts[i].offset, parts[i].size, at);
        at += parts[i].size;
    }
    at = 0;
    for (int i = 0; i < 3; i++) {
        undo(gpu, (char *)window.base + at, parts[i].size);
        at += parts[i].size;
    }
    for (int i = 0; i < 3; i++)
        MUST(zePhysicalMemDestroy(gpu->context, objects[i]));
    range_free(gpu, window);
}
