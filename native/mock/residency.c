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

/* Every object once, however often it is mapped: those seen carry the mark. */
static uint64_t sum(const struct vma *tree, uint64_t mark)
{
    if (!tree)
        return 0;
    uint64_t size = sum(tree->left, mark) + sum(tree->right, mark);
    if (tree->bo && device_only(tree->bo) && tree->bo->residency_mark != mark) {
        tree->bo->residency_mark = mark;
        size += tree->bo->size;
    }
    return size;
}

/* Bytes of all objects of the VM that can be nowhere else. vm->lock and dev->lock are held. */
static uint64_t needed(struct vm *vm)
{
    return sum(vm->root, ++vm->dev->residency_mark);
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
