#pragma once
/* The Level Zero client: virtual memory and the cases. */
#include "../common/client.h"

struct range {
    void *base;
    size_t size;
};

size_t physical_page(struct gpu *gpu, unsigned int device, size_t size);
ze_physical_mem_handle_t physical_create(struct gpu *gpu, unsigned int device, size_t size);
struct range range_reserve(struct gpu *gpu, size_t size);
void range_map(struct gpu *gpu, void *at, size_t size, ze_physical_mem_handle_t object, size_t offset);
void range_unmap(struct gpu *gpu, void *at, size_t size);
void range_free(struct gpu *gpu, struct range range);

/* The cases. */
void case_devices(struct gpu *gpu);
void case_usm(struct gpu *gpu);
void case_copy(struct gpu *gpu);
void case_fill(struct gpu *gpu);
void case_vmm(struct gpu *gpu);
void case_peer(struct gpu *gpu);
void case_ipc_physical(struct gpu *gpu);
void case_ipc_mapped(struct gpu *gpu);
void case_ipc_usm(struct gpu *gpu);
void case_ipc_peer(struct gpu *gpu);
/* What the exec'ed processes do. */
void vmm_child(struct gpu *gpu, char *const arguments[]);
void ipc_child(struct gpu *gpu, unsigned int device, const char *handle, size_t size);
