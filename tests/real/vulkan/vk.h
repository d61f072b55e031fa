#pragma once
/* A client of Vulkan on Mesa: the second independent driver, with sync objects, sparse binds and blitter commands that
 * Intel's Level Zero driver never emits. */
#include "../common/client.h"

#include <vulkan/vulkan.h>

#define MUST_VK(call) must_vk((call), #call, __FILE__, __LINE__)
void must_vk(VkResult result, const char *call, const char *file, int line);

struct vk_device {
    VkPhysicalDevice physical;
    VkDevice device;
    uint32_t copy_family, sparse_family;
    VkQueue copy_queue, sparse_queue;
    VkCommandPool pool;
    VkFence fence;
};

/* A buffer with memory of its own; `mapped` if the CPU sees it. */
struct vk_block {
    VkBuffer buffer;
    VkDeviceMemory memory;
    VkDeviceSize size;
    uint8_t *mapped;
};

enum { HOST = 1, EXPORTED = 2 };

VkPhysicalDevice vk_find(void);
void vk_open(struct vk_device *device, VkPhysicalDevice physical);
struct vk_block vk_block(struct vk_device *device, VkDeviceSize size, int flags);
/* The memory behind a descriptor that the driver takes over. */
struct vk_block vk_import(struct vk_device *device, VkDeviceSize size, int fd);
int vk_export(struct vk_device *device, const struct vk_block *block);
VkBuffer vk_buffer(struct vk_device *device, VkDeviceSize size, VkBufferCreateFlags flags, bool external);
uint32_t vk_memory_type(struct vk_device *device, uint32_t bits, bool host);
/* Copy on the transfer queue, and wait. */
void vk_copy(struct gpu *gpu, struct vk_device *device, VkBuffer to, VkDeviceSize to_offset, VkBuffer from,
             VkDeviceSize from_offset, VkDeviceSize size);
void vk_fill(struct gpu *gpu, struct vk_device *device, VkBuffer to, VkDeviceSize offset, VkDeviceSize size,
             uint32_t word);
void vk_write(struct gpu *gpu, struct vk_device *device, VkBuffer to, VkDeviceSize offset, VkDeviceSize size,
              uint32_t seed);
void vk_check(struct gpu *gpu, struct vk_device *device, VkBuffer from, VkDeviceSize offset, VkDeviceSize size,
              uint32_t seed, size_t place, const char *what);
void vk_free(struct vk_device *device, struct vk_block *block);
