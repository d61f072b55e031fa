/* A client of Unified Runtime, the layer under SYCL: virtual memory, and its two ways to share memory between
   processes. It looks at bytes with the same code as the Level Zero client, over Unified Runtime's own copies. */
#include "../common/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ur_api.h>

#define PART_OFFSET (768 * KIB)
#define PART (8 * KIB)
#define SEED_PARENT 41
#define SEED_CHILD 42
#define MAX_HANDLE 1024
#define READ_WRITE UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE

#define MUST_UR(call) must_ur((call), #call, __LINE__)

static struct {
    ur_device_handle_t device;
    ur_context_handle_t context;
    ur_queue_handle_t queue;
} ur;

static void must_ur(ur_result_t result, const char *call, int line)
{
    if (result == UR_RESULT_SUCCESS)
        return;
    fprintf(stderr, "ur.c:%d: %s: %d\n", line, call, (int)result);
    exit(BROKEN);
}

void gpu_open(struct gpu *gpu, bool sabotage)
{
    ur_adapter_handle_t adapters[8];
    ur_platform_handle_t platform;
    uint32_t count = 0, found = 0;
    memset(gpu, 0, sizeof(*gpu));
    gpu->sabotage = sabotage;
    MUST_UR(urLoaderInit(0, NULL));
    MUST_UR(urAdapterGet(8, adapters, &count));
    for (uint32_t i = 0; i < count && i < 8; i++) {
        ur_backend_t backend;
        MUST_UR(urAdapterGetInfo(adapters[i], UR_ADAPTER_INFO_BACKEND, sizeof(backend), &backend, NULL));
        if (backend == UR_BACKEND_LEVEL_ZERO && !found) {
            MUST_UR(urPlatformGet(adapters[i], 1, &platform, &found));
            MUST_UR(urDeviceGet(platform, UR_DEVICE_TYPE_GPU, 1, &ur.device, NULL));
        }
    }
    if (!found) {
        fprintf(stderr, "no Level Zero adapter with a platform\n");
        exit(BROKEN);
    }
    MUST_UR(urContextCreate(1, &ur.device, NULL, &ur.context));
    MUST_UR(urQueueCreate(ur.context, ur.device, NULL, &ur.queue));
}

void gpu_copy(struct gpu *gpu, unsigned int device, void *to, const void *from, size_t size)
{
    (void)device;
    if (!gpu->sabotage)
        MUST_UR(urEnqueueUSMMemcpy(ur.queue, true, to, from, size, 0, NULL, NULL));
}

void *gpu_host(struct gpu *gpu, size_t size)
{
    void *pointer;
    (void)gpu;
    MUST_UR(urUSMHostAlloc(ur.context, NULL, NULL, size, &pointer));
    return pointer;
}

void gpu_free(struct gpu *gpu, void *pointer)
{
    (void)gpu;
    MUST_UR(urUSMFree(ur.context, pointer));
}

static ur_physical_mem_handle_t create(size_t size, bool shareable)
{
    ur_physical_mem_handle_t object;
    ur_physical_mem_properties_t properties = {.stype = UR_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES,
                                               .flags = shareable ? UR_PHYSICAL_MEM_FLAG_ENABLE_IPC : 0};
    MUST_UR(urPhysicalMemCreate(ur.context, ur.device, size, &properties, &object));
    return object;
}

static size_t granularity(void)
{
    size_t page;
    MUST_UR(urVirtualMemGranularityGetInfo(ur.context, ur.device, 2 * MIB, UR_VIRTUAL_MEM_GRANULARITY_INFO_RECOMMENDED,
                                           sizeof(page), &page, NULL));
    return page;
}

/* Two objects in one range; then the longer one alone, from another address. */
static void case_virtual(struct gpu *gpu)
{
    size_t page = granularity();
    ur_physical_mem_handle_t a = create(2 * page, false), b = create(page, false);
    char *range;
    MUST_UR(urVirtualMemReserve(ur.context, NULL, 3 * page, (void **)&range));
    MUST_UR(urVirtualMemMap(ur.context, range, page, b, 0, READ_WRITE));
    MUST_UR(urVirtualMemMap(ur.context, range + page, 2 * page, a, 0, READ_WRITE));
    pattern_write(gpu, 0, range, 3 * page, SEED_PARENT);
    pattern_check(gpu, 0, range, 3 * page, SEED_PARENT, 0, "the range of two objects");
    MUST_UR(urVirtualMemUnmap(ur.context, range, page));
    MUST_UR(urVirtualMemUnmap(ur.context, range + page, 2 * page));
    MUST_UR(urVirtualMemMap(ur.context, range, 2 * page, a, 0, READ_WRITE));
    pattern_check(gpu, 0, range, 2 * page, SEED_PARENT, page, "the longer object, alone");
    MUST_UR(urVirtualMemUnmap(ur.context, range, 2 * page));
    MUST_UR(urVirtualMemFree(ur.context, range, 3 * page));
    MUST_UR(urPhysicalMemRelease(a));
    MUST_UR(urPhysicalMemRelease(b));
}

static void check_importers_work(struct gpu *gpu, char *memory, size_t size)
{
    size_t end = PART_OFFSET + PART;
    pattern_check(gpu, 0, memory, PART_OFFSET, SEED_PARENT, 0, "before what the importer wrote");
    pattern_check(gpu, 0, memory + PART_OFFSET, PART, SEED_CHILD, 0, "what the importer wrote");
    pattern_check(gpu, 0, memory + end, size - end, SEED_PARENT, end, "after what the importer wrote");
}

static void do_importers_work(struct gpu *gpu, char *memory, size_t size)
{
    pattern_check(gpu, 0, memory, size, SEED_PARENT, 0, "what the exporter wrote, in the importer");
    pattern_write(gpu, 0, memory + PART_OFFSET, PART, SEED_CHILD);
}

static void start_importer(struct gpu *gpu, char *verb, const void *handle, size_t handle_size, size_t size)
{
    char text[2 * MAX_HANDLE + 1], size_text[32];
    if (handle_size > MAX_HANDLE)
        exit(BROKEN);
    printf("%s: a handle of %zu bytes\n", verb, handle_size);
    hex_encode(text, handle, handle_size);
    snprintf(size_text, sizeof(size_text), "%zu", size);
    fflush(stdout);
    child_run(gpu, (char *[]){verb, text, size_text, NULL});
}

static void case_usm_ipc(struct gpu *gpu)
{
    size_t size = 2 * MIB, handle_size;
    char *memory;
    void *handle;
    MUST_UR(urUSMDeviceAlloc(ur.context, ur.device, NULL, NULL, size, (void **)&memory));
    pattern_write(gpu, 0, memory, size, SEED_PARENT);
    MUST_UR(urIPCGetMemHandleExp(ur.context, memory, &handle, &handle_size));
    start_importer(gpu, "usm-import", handle, handle_size, size);
    check_importers_work(gpu, memory, size);
    MUST_UR(urIPCPutMemHandleExp(ur.context, handle));
    gpu_free(gpu, memory);
}

static void import_usm(struct gpu *gpu, void *handle, size_t handle_size, size_t size)
{
    char *memory;
    MUST_UR(urIPCOpenMemHandleExp(ur.context, ur.device, handle, handle_size, (void **)&memory));
    do_importers_work(gpu, memory, size);
    MUST_UR(urIPCCloseMemHandleExp(ur.context, memory));
}

/* The only stock client of shared physical memory: the object is passed, the importer maps it where it likes. */
static void case_physical_ipc(struct gpu *gpu)
{
    size_t size = 2 * granularity(), handle_size;
    ur_physical_mem_handle_t object = create(size, true);
    char *range;
    void *handle;
    MUST_UR(urVirtualMemReserve(ur.context, NULL, size, (void **)&range));
    MUST_UR(urVirtualMemMap(ur.context, range, size, object, 0, READ_WRITE));
    pattern_write(gpu, 0, range, size, SEED_PARENT);
    MUST_UR(urIPCGetPhysMemHandleExp(ur.context, object, &handle, &handle_size));
    start_importer(gpu, "physical-import", handle, handle_size, size);
    check_importers_work(gpu, range, size);
    MUST_UR(urIPCPutPhysMemHandleExp(ur.context, handle));
    MUST_UR(urVirtualMemUnmap(ur.context, range, size));
    MUST_UR(urVirtualMemFree(ur.context, range, size));
    MUST_UR(urPhysicalMemRelease(object));
}

static void import_physical(struct gpu *gpu, void *handle, size_t handle_size, size_t size)
{
    ur_physical_mem_handle_t object;
    char *range;
    MUST_UR(urIPCOpenPhysMemHandleExp(ur.context, ur.device, handle, handle_size, &object));
    MUST_UR(urVirtualMemReserve(ur.context, NULL, size, (void **)&range));
    MUST_UR(urVirtualMemMap(ur.context, range, size, object, 0, READ_WRITE));
    do_importers_work(gpu, range, size);
    MUST_UR(urVirtualMemUnmap(ur.context, range, size));
    MUST_UR(urVirtualMemFree(ur.context, range, size));
    MUST_UR(urIPCClosePhysMemHandleExp(ur.context, object));
}

static const struct {
    const char *name;
    void (*run)(struct gpu *gpu);
    void (*import)(struct gpu *gpu, void *handle, size_t handle_size, size_t size);
} verbs[] = {
    {"virtual", case_virtual, NULL},
    {"usm-ipc", case_usm_ipc, NULL},
    {"physical-ipc", case_physical_ipc, NULL},
    {"usm-import", NULL, import_usm},
    {"physical-import", NULL, import_physical},
};

int main(int argc, char **argv)
{
    struct gpu gpu;
    bool sabotage = argc > 1 && strcmp(argv[argc - 1], "--sabotage") == 0;
    for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(*verbs); i++) {
        if (strcmp(argv[1], verbs[i].name) != 0)
            continue;
        gpu_open(&gpu, sabotage);
        if (verbs[i].run) {
            verbs[i].run(&gpu);
        } else if (argc >= 4) {
            char handle[MAX_HANDLE];
            hex_decode(handle, argv[2], strlen(argv[2]) / 2);
            verbs[i].import(&gpu, handle, strlen(argv[2]) / 2, strtoull(argv[3], NULL, 10));
        }
        printf("%s: %zu looked at, %zu wrong\n", argv[1], gpu.looked_at, gpu.bad);
        return gpu.bad ? WRONG : gpu.looked_at ? RIGHT : BROKEN;
    }
    fprintf(stderr, "usage: ur virtual|usm-ipc|physical-ipc [--sabotage]\n");
    return BROKEN;
}
