#include "residency.h"

#include <errno.h>

#include "vma.h"

static bool device_only(const struct bo *bo)
{
    return bo->placement == 1u << REGION_VRAM;
}

/* The first mapping of the object that the VM has. Mappings that an operation of the same array took out are still in
   the object's list. */
static struct vma *first_mapping(struct vm *vm, struct bo *bo)
{
    struct vma *vma = bo->vmas;
    while (vma && !(vma->vm == vm && vma_find(vm->root, vma->start) == vma))
        vma = vma->next_in_bo;
    return vma;
}

/* Bytes of all objects of the VM that can be nowhere else, each once. vm->lock and dev->lock are held. */
static uint64_t needed(struct vm *vm)
{
    uint64_t size = 0;
    struct vma *vma = vm->root ? vma_leftmost(vm->root) : NULL;
    for (; vma; vma = vma_find_from(vm->root, vma->end)) {
        if (vma->bo && device_only(vma->bo) && first_mapping(vm, vma->bo) == vma)
            size += vma->bo->size;
    }
    return size;
}

int residency_check_bind(struct vm *vm, struct bo *bo)
{
    struct device *dev = vm->dev;
    int r = 0;
    if (!vm_is_preempt_mode(vm) || !device_only(bo))
        return 0;
    pthread_mutex_lock(&dev->lock);
    if (dev->displaced && !first_mapping(vm, bo) && needed(vm) + bo->size > dev->region_size[REGION_VRAM])
        r = -ENOMEM;
    pthread_mutex_unlock(&dev->lock);
    return r;
}

int residency_check_exec(struct vm *vm)
{
    struct device *dev = vm->dev;
    int r = 0;
    if (vm_is_lr(vm))
        return 0;
    pthread_mutex_lock(&vm->lock);
    pthread_mutex_lock(&dev->lock);
    if (dev->displaced && needed(vm) > dev->region_size[REGION_VRAM])
        r = -ENOMEM;
    pthread_mutex_unlock(&dev->lock);
    pthread_mutex_unlock(&vm->lock);
    return r;
}
