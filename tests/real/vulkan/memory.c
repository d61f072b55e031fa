#include "vk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HANDLE_TYPE VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT

uint32_t vk_memory_type(struct vk_device *device, uint32_t bits, bool host)
{
    VkPhysicalDeviceMemoryProperties properties;
    VkMemoryPropertyFlags wanted = host ? VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                                        : VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    vkGetPhysicalDeviceMemoryProperties(device->physical, &properties);
    for (uint32_t i = 0; i < properties.memoryTypeCount; i++) {
        if ((bits >> i & 1) && (properties.memoryTypes[i].propertyFlags & wanted) == wanted)
            return i;
    }
    fprintf(stderr, "no memory type\n");
    exit(BROKEN);
}

VkBuffer vk_buffer(struct vk_device *device, VkDeviceSize size, VkBufferCreateFlags flags, bool external)
{
    VkBuffer buffer;
    VkExternalMemoryBufferCreateInfo how = {.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
                                            .handleTypes = HANDLE_TYPE};
    VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                               .pNext = external ? &how : NULL,
                               .flags = flags,
                               .size = size,
                               .usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    MUST_VK(vkCreateBuffer(device->device, &info, NULL, &buffer));
    return buffer;
}

static struct vk_block allocate(struct vk_device *device, VkDeviceSize size, int flags, const void *next)
{
    struct vk_block block = {.size = size, .buffer = vk_buffer(device, size, 0, next != NULL)};
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device->device, block.buffer, &needs);
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .pNext = next,
                                 .allocationSize = needs.size,
                                 .memoryTypeIndex = vk_memory_type(device, needs.memoryTypeBits, flags & HOST)};
    MUST_VK(vkAllocateMemory(device->device, &info, NULL, &block.memory));
    MUST_VK(vkBindBufferMemory(device->device, block.buffer, block.memory, 0));
    if (flags & HOST)
        MUST_VK(vkMapMemory(device->device, block.memory, 0, size, 0, (void **)&block.mapped));
    return block;
}

struct vk_block vk_block(struct vk_device *device, VkDeviceSize size, int flags)
{
    VkExportMemoryAllocateInfo how = {.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO,
                                      .handleTypes = HANDLE_TYPE};
    return allocate(device, size, flags, flags & EXPORTED ? &how : NULL);
}

struct vk_block vk_import(struct vk_device *device, VkDeviceSize size, int fd)
{
    VkImportMemoryFdInfoKHR how = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_FD_INFO_KHR, .handleType = HANDLE_TYPE, .fd = fd};
    return allocate(device, size, 0, &how);
}

int vk_export(struct vk_device *device, const struct vk_block *block)
{
    PFN_vkGetMemoryFdKHR get = (PFN_vkGetMemoryFdKHR)vkGetDeviceProcAddr(device->device, "vkGetMemoryFdKHR");
    VkMemoryGetFdInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, .memory = block->memory, .handleType = HANDLE_TYPE};
    int fd;
    MUST_VK(get(device->device, &info, &fd));
    return fd;
}

void vk_free(struct vk_device *device, struct vk_block *block)
{
    vkDestroyBuffer(device->device, block->buffer, NULL);
    vkFreeMemory(device->device, block->memory, NULL);
}

void vk_write(struct gpu *gpu, struct vk_device *device, VkBuffer to, VkDeviceSize offset, VkDeviceSize size,
              uint32_t seed)
{
    struct vk_block staging = vk_block(device, size, HOST);
    for (size_t i = 0; i < size; i++)
        staging.mapped[i] = pattern_byte(seed, i);
    vk_copy(gpu, device, to, offset, staging.buffer, 0, size);
    vk_free(device, &staging);
}

void vk_check(struct gpu *gpu, struct vk_device *device, VkBuffer from, VkDeviceSize offset, VkDeviceSize size,
              uint32_t seed, size_t place, const char *what)
{
    struct vk_block staging = vk_block(device, size, HOST);
    uint8_t *wanted = malloc(size);
    if (!wanted)
        exit(BROKEN);
    for (size_t i = 0; i < size; i++)
        wanted[i] = pattern_byte(seed, place + i);
    memset(staging.mapped, CANARY, size);
    vk_copy(gpu, device, staging.buffer, 0, from, offset, size);
    bytes_check(gpu, staging.mapped, wanted, size, what);
    free(wanted);
    vk_free(device, &staging);
}
