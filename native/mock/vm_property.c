/* VM_GET_PROPERTY: the page faults of a VM. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "exec_handlers.h"

/* A copy of the first `size` bytes of the faults; NULL with *error. */
static struct xe_vm_fault *copy_faults(struct vm *vm, uint32_t size, int *error)
{
    struct xe_vm_fault *copy = NULL;
    pthread_mutex_lock(&vm->lock);
    *error = -EINVAL;
    if (size <= vm->num_faults * sizeof(*copy) && size % sizeof(*copy) == 0) {
        *error = -ENOMEM;
        copy = malloc(size);
        if (copy)
            memcpy(copy, vm->faults, size);
    }
    pthread_mutex_unlock(&vm->lock);
    return copy;
}

static int get_faults(struct vm *vm, struct drm_xe_vm_get_property *args)
{
    if (args->size == 0) {
        pthread_mutex_lock(&vm->lock);
        args->size = vm->num_faults * (uint32_t)sizeof(struct xe_vm_fault);
        pthread_mutex_unlock(&vm->lock);
        return 0;
    }
    int r;
    struct xe_vm_fault *copy = copy_faults(vm, args->size, &r);
    if (!copy)
        return r;
    r = copy_to_user(args->data, copy, args->size);
    free(copy);
    return r;
}

int vm_get_property_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_vm_get_property *args = data;
    if (args->reserved[0] || args->reserved[1] || args->reserved[2] || args->extensions || args->pad)
        return -EINVAL;
    struct vm *vm = vm_lookup(file, args->vm_id);
    if (!vm)
        return -ENOENT;
    int r = args->property == DRM_XE_VM_GET_PROPERTY_FAULTS ? get_faults(vm, args) : -EINVAL;
    vm_put(vm);
    return r;
}
