#include "neo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void count_wrong(struct gpu *gpu, bool right, const char *what)
{
    gpu->looked_at++;
    if (!right) {
        gpu->bad++;
        fprintf(stderr, "%s\n", what);
    }
}

/* $NEO_DEVICES GPUs of Intel, each with memory and a copy engine. */
void case_devices(struct gpu *gpu)
{
    const char *text = getenv("NEO_DEVICES");
    uint32_t wanted = (uint32_t)strtoul(text ? text : "1", NULL, 10) + (gpu->sabotage ? 1 : 0);
    count_wrong(gpu, gpu->count == wanted, "not the number of devices asked for");
    for (uint32_t i = 0; i < gpu->count; i++) {
        ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2};
        MUST(zeDeviceGetProperties(gpu->devices[i], &properties));
        printf("device %u: %s, 0x%x, uuid ", i, properties.name, properties.deviceId);
        for (int j = 0; j < ZE_MAX_DEVICE_UUID_SIZE; j++)
            printf("%02x", properties.uuid.id[j]);
        ze_device_memory_properties_t memory = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
        uint32_t one = 1;
        MUST(zeDeviceGetMemoryProperties(gpu->devices[i], &one, &memory));
        printf(", %llu MiB\n", (unsigned long long)memory.totalSize >> 20);
        count_wrong(gpu, properties.type == ZE_DEVICE_TYPE_GPU && properties.vendorId == 0x8086, "not a GPU of Intel");
        count_wrong(gpu, memory.totalSize >= 64 * MIB, "less than 64 MiB of memory");
        ze_device_uuid_t zero = {{0}};
        count_wrong(gpu, memcmp(&properties.uuid, &zero, sizeof(zero)) != 0, "no uuid");
        for (uint32_t j = 0; j < i; j++) {
            ze_device_properties_t other = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2};
            MUST(zeDeviceGetProperties(gpu->devices[j], &other));
            count_wrong(gpu, memcmp(&properties.uuid, &other.uuid, sizeof(zero)) != 0, "two devices of one uuid");
        }
    }
}

static void check_allocation(struct gpu *gpu, void *pointer, size_t size, ze_memory_type_t type)
{
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t device;
    void *base;
    size_t length;
    MUST(zeMemGetAllocProperties(gpu->context, pointer, &properties, &device));
    MUST(zeMemGetAddressRange(gpu->context, (char *)pointer + size / 2, &base, &length));
    count_wrong(gpu, properties.type == type, "an allocation of another type than asked for");
    count_wrong(gpu, base == pointer && length >= size, "an allocation with another address range");
}

/* Data goes host, device, shared, host, and comes back whole; the CPU writes and reads what it can reach. */
void case_usm(struct gpu *gpu)
{
    const size_t size = 3 * MIB + 123;
    uint8_t *host = gpu_host(gpu, size), *back = gpu_host(gpu, size);
    uint8_t *device = gpu_device(gpu, 0, size), *shared = gpu_shared(gpu, 0, size);
    check_allocation(gpu, host, size, ZE_MEMORY_TYPE_HOST);
    check_allocation(gpu, device, size, ZE_MEMORY_TYPE_DEVICE);
    check_allocation(gpu, shared, size, ZE_MEMORY_TYPE_SHARED);
    for (size_t i = 0; i < size; i++)
        host[i] = pattern_byte(3, i);
    memset(back, CANARY, size);
    gpu_copy(gpu, 0, device, host, size);
    gpu_copy(gpu, 0, shared, device, size);
    bytes_check(gpu, shared, host, size, "shared memory, read by the CPU");
    for (size_t i = 0; i < 4096; i++)
        host[i] = shared[i] = pattern_byte(4, i);
    gpu_copy(gpu, 0, back, shared, size);
    bytes_check(gpu, back, host, size, "the way back from shared memory");
    gpu_free(gpu, shared);
    gpu_free(gpu, device);
    gpu_free(gpu, back);
    gpu_free(gpu, host);
}

/* Sizes and misalignments around the widths that copy commands have; the bytes beside stay as they were. */
void case_copy(struct gpu *gpu)
{
    static const size_t sizes[] = {1,
                                   2,
                                   3,
                                   4,
                                   7,
                                   8,
                                   15,
                                   16,
                                   63,
                                   64,
                                   65,
                                   255,
                                   4095,
                                   4096,
                                   4097,
                                   65535,
                                   65536,
                                   65537,
                                   262143,
                                   262144,
                                   1048575,
                                   1048576 + 64,
                                   3 * 1048576 + 5};
    static const size_t shifts[] = {0, 1, 4, 61};
    const size_t room = 4 * MIB;
    uint8_t *from = gpu_host(gpu, room), *wanted = malloc(room), *found = gpu_host(gpu, room);
    uint8_t *device = gpu_device(gpu, 0, room);
    if (!wanted)
        exit(BROKEN);
    for (size_t i = 0; i < room; i++)
        from[i] = pattern_byte(5, i);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (size_t j = 0; j < sizeof(shifts) / sizeof(*shifts); j++) {
            size_t size = sizes[i], to = 64 + shifts[j], source = 3 * shifts[j], window = size + 256;
            memset(wanted, 0x77, window);
            memcpy(wanted + to, from + source, size);
            gpu_fill(gpu, 0, device, &(uint8_t){0x77}, 1, window);
            gpu_copy(gpu, 0, device + to, from + source, size);
            memset(found, CANARY, window);
            gpu_copy(gpu, 0, found, device, window);
            bytes_check(gpu, found, wanted, window, "a copy and its surroundings");
        }
    }
    free(wanted);
    gpu_free(gpu, device);
    gpu_free(gpu, found);
    gpu_free(gpu, from);
}

/* Every pattern size that the copy engine is said to take, over even and odd sizes. */
void case_fill(struct gpu *gpu)
{
    static const size_t sizes[] = {16, 64, 4096, 65536, 1048576, 2 * 1048576 + 4096};
    const size_t room = 4 * MIB;
    uint8_t *wanted = malloc(room), *found = gpu_host(gpu, room), *device = gpu_device(gpu, 0, room), pattern[16];
    if (!wanted)
        exit(BROKEN);
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = pattern_byte(6, i);
    printf("patterns of up to %zu bytes\n", gpu->max_pattern);
    for (size_t width = 1; width <= gpu->max_pattern && width <= sizeof(pattern); width *= 2) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            size_t size = sizes[i] + (width == 1 ? 3 : 0), window = size + 128;
            memset(wanted, 0x77, window);
            for (size_t k = 0; k < size; k++)
                wanted[64 + k] = pattern[k % width];
            gpu_fill(gpu, 0, device, &(uint8_t){0x77}, 1, window);
            gpu_fill(gpu, 0, device + 64, pattern, width, size);
            memset(found, CANARY, window);
            gpu_copy(gpu, 0, found, device, window);
            bytes_check(gpu, found, wanted, window, "a fill and its surroundings");
        }
    }
    free(wanted);
    gpu_free(gpu, device);
    gpu_free(gpu, found);
}

/* The second device reads and writes the first one's memory by its own copy engine. */
void case_peer(struct gpu *gpu)
{
    const size_t size = 2 * MIB;
    if (gpu->count < 2) {
        fprintf(stderr, "needs two devices\n");
        exit(BROKEN);
    }
    for (unsigned int near = 0; near < 2; near++) {
        unsigned int far = 1 - near;
        ze_bool_t reaches = false;
        MUST(zeDeviceCanAccessPeer(gpu->devices[near], gpu->devices[far], &reaches));
        count_wrong(gpu, reaches, "a device that cannot reach its peer");
        uint8_t *theirs = gpu_device(gpu, far, size), *ours = gpu_device(gpu, near, size);
        pattern_write(gpu, far, theirs, size, 8 + near);
        gpu_copy(gpu, near, ours, theirs, size);
        pattern_check(gpu, near, ours, size, 8 + near, 0, "what was read from the peer");
        pattern_write(gpu, near, theirs, size, 10 + near);
        pattern_check(gpu, far, theirs, size, 10 + near, 0, "what the peer wrote");
        gpu_free(gpu, ours);
        gpu_free(gpu, theirs);

        ze_physical_mem_handle_t object = physical_create(gpu, far, size);
        struct range range = range_reserve(gpu, size);
        range_map(gpu, range.base, size, object, 0);
        pattern_write(gpu, far, range.base, size, 12 + near);
        pattern_check(gpu, near, range.base, size, 12 + near, 0, "the peer's physical memory");
        range_unmap(gpu, range.base, size);
        range_free(gpu, range);
        MUST(zePhysicalMemDestroy(gpu->context, object));
    }
}
