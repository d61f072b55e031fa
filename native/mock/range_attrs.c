/* VM_QUERY_MEM_RANGE_ATTRS: the mappings of a range, whole and in order. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "core.h"
#include "handlers.h"
#include "vma.h"

static uint32_t count_in(const struct vm *vm, uint64_t start, uint64_t end)
{
    uint32_t count = 0;
    for (struct vma *vma = vma_first(vm, start); vma && vma->start < end; vma = vma_next(vm, vma))
        count++;
    return count;
}

static int fill(const struct vm *vm, uint64_t start, uint64_t end, struct drm_xe_mem_range_attr *attrs, uint32_t room,
                uint32_t *count)
{
    *count = 0;
    for (struct vma *vma = vma_first(vm, start); vma && vma->start < end; vma = vma_next(vm, vma)) {
        if (*count == room)
            return -ENOSPC;
        attrs[(*count)++] = (struct drm_xe_mem_range_attr){
            .start = vma->start,
            .end = vma->end,
            .preferred_mem_loc = {.devmem_fd = (uint32_t)vma->preferred_loc, .migration_policy = vma->migration_policy},
            .atomic.val = vma->atomic,
            .pat_index.val = vma->pat,
        };
    }
    return 0;
}

int vm_query_attrs_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_vm_query_mem_range_attr *args = data;
    uint32_t room = args->num_mem_ranges;
    const uint64_t size = sizeof(struct drm_xe_mem_range_attr);
    if (room ? !args->vector_of_mem_attr || args->sizeof_mem_range_attr != size
             : args->vector_of_mem_attr || args->sizeof_mem_range_attr)
        return -EINVAL;
    struct vm *vm = vm_lookup(file, args->vm_id);
    if (!vm)
        return -EINVAL;
    uint64_t end = args->start + args->range;
    if (end < args->start)
        end = UINT64_MAX;
    if (!room) {
        pthread_mutex_lock(&vm->lock);
        args->num_mem_ranges = count_in(vm, args->start, end);
        pthread_mutex_unlock(&vm->lock);
        args->sizeof_mem_range_attr = size;
        vm_put(vm);
        return 0;
    }
    struct drm_xe_mem_range_attr *attrs = room * size > INT_MAX ? NULL : malloc(room * size);
    int r = attrs ? 0 : room > 1 ? -ENOBUFS : -ENOMEM;
    uint32_t count = 0;
    if (!r) {
        pthread_mutex_lock(&vm->lock);
        r = fill(vm, args->start, end, attrs, room, &count);
        pthread_mutex_unlock(&vm->lock);
    }
    if (!r)
        r = copy_to_user(args->vector_of_mem_attr, attrs, count * size);
    if (!r)
        args->num_mem_ranges = count;
    free(attrs);
    vm_put(vm);
    return r;
}
