/* Two processes share a block of a memory pool through UMF's own IPC: a client that knows nothing of this project. */
#include "../common/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <umf/ipc.h>
#include <umf/memory_pool.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_level_zero.h>

#define BLOCK (2 * MIB)
#define PART_OFFSET (512 * KIB)
#define PART (8 * KIB)
#define SEED_PARENT 31
#define SEED_CHILD 32
#define MAX_HANDLE 512

#define MUST_UMF(call)                                                                                                 \
    must((call) == UMF_RESULT_SUCCESS ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNKNOWN, #call, __FILE__, __LINE__)

static umf_memory_pool_handle_t open_pool(struct gpu *gpu, const char *kind)
{
    umf_level_zero_memory_provider_params_handle_t params;
    umf_memory_provider_handle_t provider;
    umf_memory_pool_handle_t pool;
    MUST_UMF(umfLevelZeroMemoryProviderParamsCreate(&params));
    MUST_UMF(umfLevelZeroMemoryProviderParamsSetContext(params, gpu->context));
    MUST_UMF(umfLevelZeroMemoryProviderParamsSetDevice(params, gpu->devices[0]));
    MUST_UMF(umfLevelZeroMemoryProviderParamsSetMemoryType(params, UMF_MEMORY_TYPE_DEVICE));
    MUST_UMF(umfMemoryProviderCreate(umfLevelZeroMemoryProviderOps(), params, &provider));
    MUST_UMF(umfLevelZeroMemoryProviderParamsDestroy(params));
    if (strcmp(kind, "proxy") == 0) {
        MUST_UMF(umfPoolCreate(umfProxyPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool));
    } else {
        umf_disjoint_pool_params_handle_t disjoint;
        MUST_UMF(umfDisjointPoolParamsCreate(&disjoint));
        MUST_UMF(umfPoolCreate(umfDisjointPoolOps(), provider, disjoint, UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool));
        MUST_UMF(umfDisjointPoolParamsDestroy(disjoint));
    }
    return pool;
}

static void export_block(struct gpu *gpu, char *kind)
{
    umf_memory_pool_handle_t pool = open_pool(gpu, kind);
    umf_ipc_handle_t handle;
    size_t size;
    char text[2 * MAX_HANDLE + 1];
    /* A neighbour first, so that the block of a pool need not start where an allocation starts. */
    char *neighbour = umfPoolMalloc(pool, 64 * KIB), *block = umfPoolMalloc(pool, BLOCK);
    if (!neighbour || !block)
        exit(BROKEN);
    pattern_write(gpu, 0, block, BLOCK, SEED_PARENT);
    MUST_UMF(umfGetIPCHandle(block, &handle, &size));
    if (size > MAX_HANDLE)
        exit(BROKEN);
    hex_encode(text, handle, size);
    child_run(gpu, (char *[]){"child", kind, text, NULL});
    pattern_check(gpu, 0, block, PART_OFFSET, SEED_PARENT, 0, "before what the importer wrote");
    pattern_check(gpu, 0, block + PART_OFFSET, PART, SEED_CHILD, 0, "what the importer wrote");
    pattern_check(gpu, 0, block + PART_OFFSET + PART, BLOCK - PART_OFFSET - PART, SEED_PARENT, PART_OFFSET + PART,
                  "after what the importer wrote");
    MUST_UMF(umfPutIPCHandle(handle));
    MUST_UMF(umfPoolFree(pool, block));
    MUST_UMF(umfPoolFree(pool, neighbour));
    MUST_UMF(umfPoolDestroy(pool));
}

static void import_block(struct gpu *gpu, const char *kind, const char *text)
{
    umf_memory_pool_handle_t pool = open_pool(gpu, kind);
    umf_ipc_handler_handle_t handler;
    char handle[MAX_HANDLE], *block;
    hex_decode(handle, text, strlen(text) / 2);
    MUST_UMF(umfPoolGetIPCHandler(pool, &handler));
    MUST_UMF(umfOpenIPCHandle(handler, (umf_ipc_handle_t)(void *)handle, (void **)&block));
    pattern_check(gpu, 0, block, BLOCK, SEED_PARENT, 0, "what the exporter wrote, in the importer");
    pattern_write(gpu, 0, block + PART_OFFSET, PART, SEED_CHILD);
    MUST_UMF(umfCloseIPCHandle(block));
    MUST_UMF(umfPoolDestroy(pool));
}

int main(int argc, char **argv)
{
    struct gpu gpu;
    bool sabotage = argc > 1 && strcmp(argv[argc - 1], "--sabotage") == 0;
    if (argc < 2) {
        fprintf(stderr, "usage: umf proxy|disjoint [--sabotage]\n");
        return BROKEN;
    }
    gpu_open(&gpu, sabotage);
    if (argc >= 4 && strcmp(argv[1], "child") == 0)
        import_block(&gpu, argv[2], argv[3]);
    else
        export_block(&gpu, argv[1]);
    printf("%s: %zu looked at, %zu wrong\n", argv[1], gpu.looked_at, gpu.bad);
    return gpu.bad ? WRONG : RIGHT;
}
