#include "vk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (2 * MIB)
#define PART_OFFSET (512 * KIB)
#define PART (64 * KIB)
#define SEED_EXPORTER 51
#define SEED_IMPORTER 52

static void importers_work(struct gpu *gpu, struct vk_device *device, int fd)
{
    struct vk_block theirs = vk_import(device, SIZE, fd);
    vk_check(gpu, device, theirs.buffer, 0, SIZE, SEED_EXPORTER, 0, "what the exporter wrote, in the importer");
    vk_write(gpu, device, theirs.buffer, PART_OFFSET, PART, SEED_IMPORTER);
    vk_free(device, &theirs);
}

static void exporters_check(struct gpu *gpu, struct vk_device *device, VkBuffer buffer)
{
    size_t end = PART_OFFSET + PART;
    vk_check(gpu, device, buffer, 0, PART_OFFSET, SEED_EXPORTER, 0, "before what the importer wrote");
    vk_check(gpu, device, buffer, PART_OFFSET, PART, SEED_IMPORTER, 0, "what the importer wrote");
    vk_check(gpu, device, buffer, end, SIZE - end, SEED_EXPORTER, end, "after what the importer wrote");
}

/* Between two devices of one process. */
static void case_external(struct gpu *gpu, VkPhysicalDevice physical)
{
    struct vk_device a, b;
    vk_open(&a, physical);
    vk_open(&b, physical);
    struct vk_block ours = vk_block(&a, SIZE, EXPORTED);
    vk_write(gpu, &a, ours.buffer, 0, SIZE, SEED_EXPORTER);
    importers_work(gpu, &b, vk_export(&a, &ours));
    exporters_check(gpu, &a, ours.buffer);
    vk_free(&a, &ours);
}

/* To an exec'ed process, which inherits the descriptor. */
static void case_process(struct gpu *gpu, VkPhysicalDevice physical)
{
    struct vk_device device;
    char number[16];
    vk_open(&device, physical);
    struct vk_block ours = vk_block(&device, SIZE, EXPORTED);
    vk_write(gpu, &device, ours.buffer, 0, SIZE, SEED_EXPORTER);
    int fd = vk_export(&device, &ours);
    if (fcntl(fd, F_SETFD, 0) < 0)
        exit(BROKEN);
    snprintf(number, sizeof(number), "%d", fd);
    child_run(gpu, (char *[]){"import", number, NULL});
    exporters_check(gpu, &device, ours.buffer);
    vk_free(&device, &ours);
}

/* A buffer whose two halves are two pieces of memory in the other order, checked through plain buffers over them. */
static void case_sparse(struct gpu *gpu, VkPhysicalDevice physical)
{
    struct vk_device device;
    vk_open(&device, physical);
    struct vk_block halves[2] = {vk_block(&device, SIZE, 0), vk_block(&device, SIZE, 0)};
    VkBuffer sparse = vk_buffer(&device, 2 * SIZE, VK_BUFFER_CREATE_SPARSE_BINDING_BIT, false);
    VkSparseMemoryBind binds[2] = {{.resourceOffset = 0, .size = SIZE, .memory = halves[1].memory},
                                   {.resourceOffset = SIZE, .size = SIZE, .memory = halves[0].memory}};
    VkSparseBufferMemoryBindInfo buffer = {.buffer = sparse, .bindCount = 2, .pBinds = binds};
    VkBindSparseInfo info = {
        .sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO, .bufferBindCount = 1, .pBufferBinds = &buffer};
    MUST_VK(vkQueueBindSparse(device.sparse_queue, 1, &info, device.fence));
    MUST_VK(vkWaitForFences(device.device, 1, &device.fence, VK_TRUE, 10000000000u));
    MUST_VK(vkResetFences(device.device, 1, &device.fence));
    vk_write(gpu, &device, sparse, 0, 2 * SIZE, SEED_EXPORTER);
    vk_check(gpu, &device, sparse, 0, 2 * SIZE, SEED_EXPORTER, 0, "the sparse buffer");
    vk_check(gpu, &device, halves[1].buffer, 0, SIZE, SEED_EXPORTER, 0, "its first half, alone");
    vk_check(gpu, &device, halves[0].buffer, 0, SIZE, SEED_EXPORTER, SIZE, "its second half, alone");
    vkDestroyBuffer(device.device, sparse, NULL);
    vk_free(&device, &halves[0]);
    vk_free(&device, &halves[1]);
}

/* A fill of words, with the pattern around it untouched. */
static void case_fill(struct gpu *gpu, VkPhysicalDevice physical)
{
    struct vk_device device;
    vk_open(&device, physical);
    struct vk_block block = vk_block(&device, SIZE, 0), found = vk_block(&device, SIZE, HOST);
    uint8_t *wanted = malloc(SIZE);
    const uint8_t word[4] = {0x12, 0x34, 0x56, 0x78};
    if (!wanted)
        exit(BROKEN);
    for (size_t i = 0; i < SIZE; i++)
        wanted[i] = i >= PART_OFFSET && i < PART_OFFSET + PART ? word[i % 4] : pattern_byte(SEED_EXPORTER, i);
    memset(found.mapped, CANARY, SIZE);
    vk_write(gpu, &device, block.buffer, 0, SIZE, SEED_EXPORTER);
    vk_fill(gpu, &device, block.buffer, PART_OFFSET, PART, 0x78563412);
    vk_copy(gpu, &device, found.buffer, 0, block.buffer, 0, SIZE);
    bytes_check(gpu, found.mapped, wanted, SIZE, "a fill and its surroundings");
    free(wanted);
    vk_free(&device, &found);
    vk_free(&device, &block);
}

static const struct {
    const char *name;
    void (*run)(struct gpu *gpu, VkPhysicalDevice physical);
} cases[] = {{"external", case_external}, {"process", case_process}, {"sparse", case_sparse}, {"fill", case_fill}};

int main(int argc, char **argv)
{
    struct gpu gpu = {.sabotage = argc > 1 && strcmp(argv[argc - 1], "--sabotage") == 0};
    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(*cases); i++) {
        if (strcmp(argv[1], cases[i].name) == 0)
            cases[i].run(&gpu, vk_find());
    }
    if (argc >= 3 && strcmp(argv[1], "import") == 0) {
        struct vk_device device;
        vk_open(&device, vk_find());
        importers_work(&gpu, &device, (int)strtol(argv[2], NULL, 10));
    }
    printf("%s: %zu looked at, %zu wrong\n", argc > 1 ? argv[1] : "nothing", gpu.looked_at, gpu.bad);
    return gpu.bad ? WRONG : gpu.looked_at ? RIGHT : BROKEN;
}
