/* Address spaces: birth, death, and what the GPU sees in them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "core.h"
#include "gem.h"
#include "handlers.h"
#include "vma.h"

#define CREATE_FLAGS                                                                                                   \
    (DRM_XE_VM_CREATE_FLAG_SCRATCH_PAGE | DRM_XE_VM_CREATE_FLAG_LR_MODE | DRM_XE_VM_CREATE_FLAG_FAULT_MODE |           \
     DRM_XE_VM_CREATE_FLAG_NO_VM_OVERCOMMIT)

static int check_create(const struct profile *profile, const struct drm_xe_vm_create *args)
{
    bool fault = args->flags & DRM_XE_VM_CREATE_FLAG_FAULT_MODE;
    bool scratch = args->flags & DRM_XE_VM_CREATE_FLAG_SCRATCH_PAGE;
    if (args->extensions)
        return -EINVAL;
    if (fault && !profile->has_usm)
        return -EINVAL;
    if (args->reserved[0] || args->reserved[1])
        return -EINVAL;
    if (args->flags & ~(uint32_t)CREATE_FLAGS)
        return -EINVAL;
    if (scratch && fault && !profile->scratch_with_fault)
        return -EINVAL;
    if (fault && !(args->flags & DRM_XE_VM_CREATE_FLAG_LR_MODE))
        return -EINVAL;
    if (args->flags & DRM_XE_VM_CREATE_FLAG_NO_VM_OVERCOMMIT && !fault)
        return -EINVAL;
    return 0;
}

int vm_create_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_vm_create *args = data;
    int r = check_create(file->dev->profile, args);
    if (r)
        return r;
    struct vm *vm = calloc(1, sizeof(*vm));
    if (!vm)
        return -ENOMEM;
    atomic_init(&vm->refs, 1);
    vm->dev = file->dev;
    vm->flags = args->flags;
    vm->size = UINT64_C(1) << file->dev->profile->va_bits;
    vm->jobs_tail = &vm->jobs;
    pthread_mutex_init(&vm->lock, NULL);
    atomic_fetch_add(&file->dev->num_vms, 1);
    pthread_mutex_lock(&file->lock);
    uint32_t id = idr_alloc(&file->vms, vm, &r);
    pthread_mutex_unlock(&file->lock);
    if (!id) {
        vm_close(vm);
        vm_put(vm);
        return r == -ENOSPC ? -EBUSY : r;
    }
    args->vm_id = id;
    return 0;
}

int vm_destroy_ioctl(struct drm_file *file, void *data)
{
    const struct drm_xe_vm_destroy *args = data;
    if (args->pad || args->reserved[0] || args->reserved[1])
        return -EINVAL;
    pthread_mutex_lock(&file->lock);
    struct vm *vm = idr_find(&file->vms, args->vm_id);
    int r = vm ? 0 : -ENOENT;
    if (vm && vm_is_preempt_mode(vm)) {
        pthread_mutex_lock(&vm->lock);
        r = vm->num_queues ? -EBUSY : 0;
        pthread_mutex_unlock(&vm->lock);
    }
    if (!r)
        idr_remove(&file->vms, args->vm_id);
    pthread_mutex_unlock(&file->lock);
    if (r)
        return r;
    vm_close(vm);
    vm_put(vm);
    return 0;
}

struct vm *vm_lookup(struct drm_file *file, uint32_t id)
{
    pthread_mutex_lock(&file->lock);
    struct vm *vm = idr_find(&file->vms, id);
    if (vm)
        vm_get(vm);
    pthread_mutex_unlock(&file->lock);
    return vm;
}

struct vm *vm_get(struct vm *vm)
{
    atomic_fetch_add_explicit(&vm->refs, 1, memory_order_relaxed);
    return vm;
}

/* Closed before: there are no mappings any more, so no lock is taken. */
void vm_put(struct vm *vm)
{
    if (atomic_fetch_sub_explicit(&vm->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < vm->num_execs; i++)
        fence_put(vm->execs[i]);
    free(vm->execs);
    free(vm->faults);
    pthread_mutex_destroy(&vm->lock);
    free(vm);
}

/* Binds that still wait keep waiting, for their fences' sake; they have nothing to show any more. */
void vm_close(struct vm *vm)
{
    pthread_mutex_lock(&vm->lock);
    vm->closed = true;
    struct vma *mappings = vm->root;
    vm->root = NULL;
    vm->num_vmas = 0;
    vm->size = 0;
    pthread_mutex_unlock(&vm->lock);
    vma_free_tree(vm->dev, mappings);
    atomic_fetch_sub(&vm->dev->num_vms, 1);
}

int vm_add_exec(struct vm *vm, struct fence *fence)
{
    pthread_mutex_lock(&vm->lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < vm->num_execs; i++) {
        if (fence_is_signalled(vm->execs[i]))
            fence_put(vm->execs[i]);
        else
            vm->execs[kept++] = vm->execs[i];
    }
    vm->num_execs = kept;
    int r = 0;
    if (kept == vm->max_execs) {
        uint32_t wanted = vm->max_execs ? vm->max_execs * 2 : 8;
        struct fence **execs = realloc(vm->execs, wanted * sizeof(*execs));
        if (execs) {
            vm->execs = execs;
            vm->max_execs = wanted;
        } else {
            r = -ENOMEM;
        }
    }
    if (!r)
        vm->execs[vm->num_execs++] = fence_get(fence);
    pthread_mutex_unlock(&vm->lock);
    return r;
}

/* Memory of the program: as much of it as is there, from the first page on. */
static int span_program_memory(uint64_t address, bool write, struct gpu_span *span)
{
    if (check_user_range(address, span->size, write)) {
        uint64_t page_end = (address | (PAGE_SIZE - 1)) + 1;
        if (span->size > page_end - address)
            span->size = page_end - address;
        if (check_user_range(address, span->size, write))
            return -EFAULT;
    }
    span->cpu = (void *)address;
    return 0;
}

int vm_span(struct vm *vm, uint64_t va, uint64_t size, bool write, struct gpu_span *span)
{
    *span = (struct gpu_span){.writable = true};
    pthread_mutex_lock(&vm->lock);
    uint64_t limit;
    const struct vma *found = bind_effective(vm, va, &limit);
    struct vma vma = {0};
    if (found) {
        vma = *found;
        if (vma.bo)
            bo_get(vma.bo);
    }
    pthread_mutex_unlock(&vm->lock);

    uint64_t room = limit > va ? limit - va : 1;
    span->size = size < room ? size : room;
    if (!found) {
        span->scratch = vm->flags & DRM_XE_VM_CREATE_FLAG_SCRATCH_PAGE && limit > va;
        return span->scratch ? 0 : -EFAULT;
    }
    span->writable = !(vma.flags & VMA_READONLY);
    int r = write && !span->writable ? -EPERM : 0;
    if (!r && vma.flags & VMA_MIRROR)
        r = span_program_memory(va, write, span);
    else if (!r && vma.flags & VMA_USERPTR)
        r = span_program_memory(vma.offset + (va - vma.start), write, span);
    else if (!r && vma.bo) {
        char *cpu = bo_map(vma.bo);
        if (!cpu) {
            bo_put(vma.bo);
            return -ENOMEM;
        }
        if (vma.bo->purge == BO_PURGED) { /* pinned, so it stays what it is: a null mapping, as the kernel rebinds it */
            bo_unmap(vma.bo);
            bo_put(vma.bo);
            return 0;
        }
        span->offset = vma.offset + (va - vma.start);
        span->cpu = cpu + span->offset;
        span->bo = vma.bo;
        return 0;
    }
    if (vma.bo)
        bo_put(vma.bo);
    return r;
}

void vm_span_put(struct gpu_span *span)
{
    if (!span->bo)
        return;
    bo_unmap(span->bo);
    bo_put(span->bo);
    span->bo = NULL;
}

int vm_read(struct vm *vm, uint64_t va, void *to, uint64_t size, uint64_t *fault_va)
{
    while (size) {
        struct gpu_span span;
        int r = vm_span(vm, va, size, false, &span);
        if (r) {
            *fault_va = va;
            return r;
        }
        if (span.cpu)
            memcpy(to, span.cpu, span.size);
        else
            memset(to, 0, span.size);
        to = (char *)to + span.size;
        va += span.size;
        size -= span.size;
        vm_span_put(&span);
    }
    return 0;
}

int vm_write(struct vm *vm, uint64_t va, const void *from, uint64_t size, uint64_t *fault_va)
{
    while (size) {
        struct gpu_span span;
        int r = vm_span(vm, va, size, true, &span);
        if (r) {
            *fault_va = va;
            return r;
        }
        if (span.cpu)
            memcpy(span.cpu, from, span.size);
        from = (const char *)from + span.size;
        va += span.size;
        size -= span.size;
        vm_span_put(&span);
    }
    return 0;
}
