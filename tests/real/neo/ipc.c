#include "neo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEED_PARENT 21
#define SEED_CHILD 22
#define CHILD_FILL 0x3c

/* Where the child writes: a part in the middle by copy, the one after it by fill. */
static size_t part_offset(size_t size)
{
    return size / 4 + 64;
}

static size_t part_size(size_t size)
{
    return size / 8;
}

/* The driver's second transport is an abstract socket; whether it listens tells which one is in use. */
static void check_transport(struct gpu *gpu, pid_t exporter)
{
    const char *wanted = getenv("NEO_TRANSPORT");
    char name[64], line[512];
    bool listens = false;
    if (!wanted)
        return;
    snprintf(name, sizeof(name), "@neo_ipc_%d", (int)exporter);
    FILE *sockets = fopen("/proc/net/unix", "r");
    while (sockets && fgets(line, sizeof(line), sockets))
        listens |= strstr(line, name) != NULL;
    if (sockets)
        fclose(sockets);
    gpu->looked_at++;
    if (listens != (strcmp(wanted, "socket") == 0)) {
        fprintf(stderr, "the driver %s a socket, but %s is asked for\n", listens ? "listens on" : "has not", wanted);
        gpu->bad++;
    }
}

void ipc_child(struct gpu *gpu, unsigned int device, const char *text, size_t size)
{
    ze_ipc_mem_handle_t handle;
    size_t offset = part_offset(size), part = part_size(size);
    char *base;
    if (strlen(text) != 2 * sizeof(handle))
        exit(BROKEN);
    hex_decode(handle.data, text, sizeof(handle));
    MUST(zeMemOpenIpcHandle(gpu->context, gpu->devices[device], handle, 0, (void **)&base));
    check_transport(gpu, getppid());
    pattern_check(gpu, device, base, size, SEED_PARENT, 0, "what the exporter wrote, in the importer");
    pattern_write(gpu, device, base + offset, part, SEED_CHILD);
    gpu_fill(gpu, device, base + offset + part, &(uint8_t){CHILD_FILL}, 1, part);
    MUST(zeMemCloseIpcHandle(gpu->context, base));
}

static void run_child(struct gpu *gpu, unsigned int device, const ze_ipc_mem_handle_t *handle, size_t size)
{
    char text[2 * sizeof(*handle) + 1], number[32], size_text[32];
    hex_encode(text, handle->data, sizeof(*handle));
    snprintf(number, sizeof(number), "%u", device);
    snprintf(size_text, sizeof(size_text), "%zu", size);
    child_run(gpu, (char *[]){"ipc-child", number, text, size_text, NULL});
}

/* `memory` holds the parent's pattern; `name` is what zeMemGetIpcHandle takes for it. */
static void share(struct gpu *gpu, unsigned int importer, char *memory, const void *name, size_t size)
{
    ze_ipc_mem_handle_t handle;
    size_t offset = part_offset(size), part = part_size(size), end = offset + 2 * part;
    pattern_write(gpu, 0, memory, size, SEED_PARENT);
    MUST(zeMemGetIpcHandle(gpu->context, name, &handle));
    run_child(gpu, importer, &handle, size);
    pattern_check(gpu, 0, memory, offset, SEED_PARENT, 0, "before what the importer wrote");
    pattern_check(gpu, 0, memory + offset, part, SEED_CHILD, 0, "what the importer copied");
    value_check(gpu, 0, memory + offset + part, part, CHILD_FILL, "what the importer filled");
    pattern_check(gpu, 0, memory + end, size - end, SEED_PARENT, end, "after what the importer wrote");
    MUST(zeMemPutIpcHandle(gpu->context, handle));
}

static void share_physical(struct gpu *gpu, unsigned int importer, bool by_object)
{
    size_t size = 2 * physical_page(gpu, 0, 2 * MIB);
    ze_physical_mem_handle_t object = physical_create(gpu, 0, size);
    struct range range = range_reserve(gpu, size);
    range_map(gpu, range.base, size, object, 0);
    share(gpu, importer, range.base, by_object ? (void *)object : range.base, size);
    range_unmap(gpu, range.base, size);
    range_free(gpu, range);
    MUST(zePhysicalMemDestroy(gpu->context, object));
}

void case_ipc_physical(struct gpu *gpu)
{
    share_physical(gpu, 0, true);
}

void case_ipc_mapped(struct gpu *gpu)
{
    share_physical(gpu, 0, false);
}

void case_ipc_usm(struct gpu *gpu)
{
    size_t size = 3 * MIB;
    char *memory = gpu_device(gpu, 0, size);
    share(gpu, 0, memory, memory, size);
    gpu_free(gpu, memory);
}

void case_ipc_peer(struct gpu *gpu)
{
    if (gpu->count < 2) {
        fprintf(stderr, "needs two devices\n");
        exit(BROKEN);
    }
    share_physical(gpu, 1, true);
}
