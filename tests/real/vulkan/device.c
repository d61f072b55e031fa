#include "vk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INTEL 0x8086
#define LIMIT_NS 30000000000u

void must_vk(VkResult result, const char *call, const char *file, int line)
{
    if (result == VK_SUCCESS)
        return;
    fprintf(stderr, "%s:%d: %s: %d\n", file, line, call, (int)result);
    exit(BROKEN);
}

VkPhysicalDevice vk_find(void)
{
    VkInstance instance;
    VkPhysicalDevice found[8];
    uint32_t count = 8;
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_1};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
    MUST_VK(vkCreateInstance(&info, NULL, &instance));
    vkEnumeratePhysicalDevices(instance, &count, found);
    for (uint32_t i = 0; i < count; i++) {
        VkPhysicalDeviceProperties properties;
        vkGetPhysicalDeviceProperties(found[i], &properties);
        if (properties.vendorID == INTEL) {
            printf("%s\n", properties.deviceName);
            return found[i];
        }
    }
    fprintf(stderr, "no GPU of Intel among %u\n", count);
    exit(BROKEN);
}

static void find_families(struct vk_device *device)
{
    VkQueueFamilyProperties families[16];
    uint32_t count = 16;
    bool copies = false, sparse = false;
    vkGetPhysicalDeviceQueueFamilyProperties(device->physical, &count, families);
    for (uint32_t i = 0; i < count; i++) {
        VkQueueFlags flags = families[i].queueFlags;
        if (!copies && (flags & VK_QUEUE_TRANSFER_BIT) && !(flags & (VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT))) {
            device->copy_family = i;
            copies = true;
        }
        if (!sparse && (flags & VK_QUEUE_SPARSE_BINDING_BIT)) {
            device->sparse_family = i;
            sparse = true;
        }
    }
    if (!copies || !sparse) {
        fprintf(stderr, "no queue that only transfers, or none that binds\n");
        exit(BROKEN);
    }
}

void vk_open(struct vk_device *device, VkPhysicalDevice physical)
{
    *device = (struct vk_device){.physical = physical};
    find_families(device);
    const float priority = 1;
    const char *extensions[] = {VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME};
    VkPhysicalDeviceFeatures features = {.sparseBinding = VK_TRUE};
    VkDeviceQueueCreateInfo queues[2] = {{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                          .queueFamilyIndex = device->copy_family,
                                          .queueCount = 1,
                                          .pQueuePriorities = &priority},
                                         {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                          .queueFamilyIndex = device->sparse_family,
                                          .queueCount = 1,
                                          .pQueuePriorities = &priority}};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .queueCreateInfoCount = device->copy_family == device->sparse_family ? 1 : 2,
                               .pQueueCreateInfos = queues,
                               .enabledExtensionCount = 1,
                               .ppEnabledExtensionNames = extensions,
                               .pEnabledFeatures = &features};
    MUST_VK(vkCreateDevice(physical, &info, NULL, &device->device));
    vkGetDeviceQueue(device->device, device->copy_family, 0, &device->copy_queue);
    vkGetDeviceQueue(device->device, device->sparse_family, 0, &device->sparse_queue);
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .queueFamilyIndex = device->copy_family};
    MUST_VK(vkCreateCommandPool(device->device, &pool, NULL, &device->pool));
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    MUST_VK(vkCreateFence(device->device, &fence, NULL, &device->fence));
}

static VkCommandBuffer begin(struct vk_device *device)
{
    VkCommandBuffer commands;
    VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                        .commandPool = device->pool,
                                        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        .commandBufferCount = 1};
    VkCommandBufferBeginInfo once = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    MUST_VK(vkAllocateCommandBuffers(device->device, &info, &commands));
    MUST_VK(vkBeginCommandBuffer(commands, &once));
    return commands;
}

static void submit(struct vk_device *device, VkCommandBuffer commands)
{
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
    MUST_VK(vkEndCommandBuffer(commands));
    MUST_VK(vkQueueSubmit(device->copy_queue, 1, &info, device->fence));
    MUST_VK(vkWaitForFences(device->device, 1, &device->fence, VK_TRUE, LIMIT_NS));
    MUST_VK(vkResetFences(device->device, 1, &device->fence));
    vkFreeCommandBuffers(device->device, device->pool, 1, &commands);
}

void vk_copy(struct gpu *gpu, struct vk_device *device, VkBuffer to, VkDeviceSize to_offset, VkBuffer from,
             VkDeviceSize from_offset, VkDeviceSize size)
{
    VkCommandBuffer commands = begin(device);
    VkBufferCopy part = {.srcOffset = from_offset, .dstOffset = to_offset, .size = size};
    if (!gpu->sabotage)
        vkCmdCopyBuffer(commands, from, to, 1, &part);
    submit(device, commands);
}

void vk_fill(struct gpu *gpu, struct vk_device *device, VkBuffer to, VkDeviceSize offset, VkDeviceSize size,
             uint32_t word)
{
    VkCommandBuffer commands = begin(device);
    if (!gpu->sabotage)
        vkCmdFillBuffer(commands, to, offset, size, word);
    submit(device, commands);
}
