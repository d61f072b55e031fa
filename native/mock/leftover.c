#include "leftover.h"

#include <stdlib.h>

#include "self_maps.h"

#define MOST 256 /* the oldest is forgotten for good: then the answer is EINVAL instead of EACCES */

struct leftovers {
    uint32_t next;
    struct leftover {
        uint64_t inode_dev, inode, offset, size;
    } ring[MOST];
};

void leftover_add_locked(const struct bo *bo)
{
    struct device *dev = bo->dev;
    if (!bo->mmap_offset || !bo->inode || !(bo->cpu_mapped || bo->exported))
        return;
    if (!dev->leftovers)
        dev->leftovers = calloc(1, sizeof(*dev->leftovers));
    if (dev->leftovers)
        dev->leftovers->ring[dev->leftovers->next++ % MOST] =
            (struct leftover){bo->inode_dev, bo->inode, bo->mmap_offset, bo->size};
}

bool leftover_lives_locked(struct device *dev, uint64_t offset, uint64_t size)
{
    for (uint32_t i = 0; dev->leftovers && offset && i < MOST; i++) {
        struct leftover *one = &dev->leftovers->ring[i];
        if (one->offset != offset)
            continue;
        if (self_keeps_file(one->inode_dev, one->inode))
            return size <= one->size;
        *one = (struct leftover){0};
    }
    return false;
}

uint64_t leftover_take_locked(struct device *dev, uint64_t inode_dev, uint64_t inode)
{
    for (uint32_t i = 0; dev->leftovers && i < MOST; i++) {
        struct leftover *one = &dev->leftovers->ring[i];
        if (one->offset && one->inode == inode && one->inode_dev == inode_dev) {
            uint64_t offset = one->offset;
            *one = (struct leftover){0};
            return offset;
        }
    }
    return 0;
}
