/* What the operations of VM_BIND do to a VM's mappings: replace, split, remove; and how all of it is taken back. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "bind.h"
#include "gem.h"
#include "residency.h"
#include "userptr.h"
#include "vma.h"

/* Page tables that hold nothing beside [*start, *end) come or go with it: the bind changes the entry above them, and
   meets every bind below that entry. How the driver finds its intervals is a guess from its outcome. */
static void add_page_tables(const struct vm *vm, uint64_t *start, uint64_t *end)
{
    const uint64_t first = *start, last = *end;
    for (unsigned shift = 21; shift <= 39; shift += 9) {
        uint64_t low = first >> shift << shift, high = ((last - 1) >> shift) + 1;
        high = high << shift;
        const struct vma *before = vma_find_from(vm->root, low), *after = vma_find_from(vm->root, last);
        if ((before && before->start < first) || (after && after->start < high))
            return;
        *start = low;
        *end = high;
    }
}

static int remember(struct bind_job *job, uint64_t start, uint64_t end, struct vma *removed, bool only_comes_or_goes)
{
    job->undos[job->num_undos++] = (struct bind_undo){start, end, removed};
    if (job->may_wait && only_comes_or_goes)
        add_page_tables(job->vm, &start, &end);
    if (start < job->start)
        job->start = start;
    if (end > job->end)
        job->end = end;
    job->unmaps |= removed != NULL;
    return 0;
}

static int reserve_undo(struct bind_job *job, size_t count)
{
    if (job->num_undos + count <= job->max_undos)
        return 0;
    size_t wanted = job->max_undos * 2 + count;
    struct bind_undo *undos = realloc(job->undos, wanted * sizeof(*undos));
    if (!undos)
        return -ENOMEM;
    job->undos = undos;
    job->max_undos = wanted;
    return 0;
}

/* A mapping whose bind has a user fence that was not written yet cannot go. */
static bool any_pending(const struct vm *vm, const struct vma *tree)
{
    return tree && ((tree->job && bind_job_is_pending(vm, tree->job)) || any_pending(vm, tree->left) ||
                    any_pending(vm, tree->right));
}

/* Leftovers of userptr mappings are pinned anew. */
static int check_leftover(const struct vma *vma, uint64_t start, uint64_t end)
{
    if (!(vma->flags & VMA_USERPTR))
        return 0;
    return userptr_check(vma->offset + (start - vma->start), end - start, !(vma->flags & VMA_READONLY));
}

/* Replaces [start, end) by `mapping` (NULL: by nothing), keeping what sticks out of it in front and behind. */
static int replace(struct bind_job *job, uint64_t start, uint64_t end, struct vma *mapping)
{
    struct vm *vm = job->vm;
    int r = reserve_undo(job, 1);
    if (r)
        return r;
    struct vma *first = vma_find_from(vm->root, start);
    if (!first || first->start >= end) { /* a hole */
        if (mapping) {
            vma_paste(&vm->root, mapping);
            vm->num_vmas++;
            job->num_pt_ops++;
            remember(job, start, end, NULL, true);
        }
        return 0;
    }
    struct vma *last = vma_find(vm->root, end - 1);
    uint64_t hull_start = first->start < start ? first->start : start;
    uint64_t hull_end = last && last->end > end ? last->end : end;
    struct vma *front = NULL, *back = NULL;
    if (first->start < start) {
        r = check_leftover(first, first->start, start);
        front = r ? NULL : vma_part(first, first->start, start);
        if (!r && !front)
            r = -ENOMEM;
    }
    if (!r && last && last->end > end) {
        r = check_leftover(last, end, last->end);
        back = r ? NULL : vma_part(last, end, last->end);
        if (!r && !back)
            r = -ENOMEM;
    }
    if (r) {
        vma_free_tree(vm->dev, front);
        return r;
    }
    struct vma *removed = vma_cut(&vm->root, hull_start, hull_end);
    if (vm->num_user_fences && any_pending(vm, removed))
        r = -EBUSY;
    if (r) {
        vma_paste(&vm->root, removed);
        vma_free_tree(vm->dev, front);
        vma_free_tree(vm->dev, back);
        return r;
    }
    uint64_t num_removed = vma_count(removed);
    vma_paste(&vm->root, front);
    vma_paste(&vm->root, mapping);
    vma_paste(&vm->root, back);
    uint64_t num_added = (front != NULL) + (mapping != NULL) + (back != NULL);
    vm->num_vmas += num_added - num_removed;
    job->num_pt_ops += num_removed + num_added;
    return remember(job, hull_start, hull_end, removed, !mapping);
}

static uint32_t vma_flags(const struct drm_xe_vm_bind_op *args)
{
    static const struct {
        uint32_t bind, vma;
    } flags[] = {
        {DRM_XE_VM_BIND_FLAG_READONLY, VMA_READONLY},           {DRM_XE_VM_BIND_FLAG_NULL, VMA_NULL},
        {DRM_XE_VM_BIND_FLAG_DUMPABLE, VMA_DUMPABLE},           {DRM_XE_VM_BIND_FLAG_CPU_ADDR_MIRROR, VMA_MIRROR},
        {DRM_XE_VM_BIND_FLAG_MADVISE_AUTORESET, VMA_AUTORESET},
    };
    uint32_t result = args->op == DRM_XE_VM_BIND_OP_MAP_USERPTR ? VMA_USERPTR : 0;
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
        result |= args->flags & flags[i].bind ? flags[i].vma : 0;
    return result;
}

static int prepare_object(const struct bind_job *job, const struct bind_op *op)
{
    struct bo *bo = op->bo;
    bool now = !vm_is_fault_mode(job->vm) || op->args->flags & DRM_XE_VM_BIND_FLAG_IMMEDIATE;
    pthread_mutex_lock(&bo->dev->lock);
    int r = bo->purge == BO_DONTNEED ? -EBUSY : bo->purge == BO_PURGED ? -EINVAL : now ? bo_populate_locked(bo) : 0;
    pthread_mutex_unlock(&bo->dev->lock);
    return r ? r : residency_check_bind(job->vm, bo);
}

static int map(struct bind_job *job, const struct bind_op *op)
{
    const struct drm_xe_vm_bind_op *args = op->args;
    uint64_t end = args->addr + args->range;
    uint64_t offset = op->bo || args->op == DRM_XE_VM_BIND_OP_MAP_USERPTR ? args->obj_offset : 0;
    int r = 0;
    if (args->op == DRM_XE_VM_BIND_OP_MAP_USERPTR) {
        if (args->userptr + args->range < args->userptr)
            return -EOVERFLOW;
        r = userptr_check(args->userptr, args->range, !(args->flags & DRM_XE_VM_BIND_FLAG_READONLY));
    } else if (op->bo) {
        r = prepare_object(job, op);
    }
    if (r)
        return r;
    struct vma *vma = vma_new(job->vm, args->addr, end, op->bo, offset, vma_flags(args), args->pat_index);
    if (!vma)
        return -ENOMEM;
    if (job->user_fence)
        vma->job = job->serial;
    r = replace(job, args->addr, end, vma);
    if (r)
        vma_free_tree(job->vm->dev, vma);
    job->num_leaf_tables += (args->range + MIB(2) - 1) / MIB(2);
    return r;
}

/* Driver 7.2.13 unmaps such a mapping a second time: a use after free in the kernel, from an unprivileged call. */
static void warn_unmapped_twice(void)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    static const char line[] =
        "ze_ipc mock: UNMAP_ALL of an object that an earlier operation of the same array unmapped: "
        "works here, corrupts the real driver (7.2.13)\n";
    if (!atomic_flag_test_and_set(&warned) && write(STDERR_FILENO, line, sizeof(line) - 1) < 0)
        return;
}

/* The mappings of an object in this VM, each its own operation. A mapping that an earlier operation of the same array
   took out is still in the object's list; the VM does not find it any more. */
static int unmap_all(struct bind_job *job, struct bo *bo)
{
    struct vm *vm = job->vm;
    size_t count = 0;
    pthread_mutex_lock(&bo->dev->lock);
    for (struct vma *vma = bo->vmas; vma; vma = vma->next_in_bo) {
        bool here = vma->vm == vm && vma_find(vm->root, vma->start) == vma;
        count += here;
        if (vma->vm == vm && !here)
            warn_unmapped_twice();
    }
    int r = reserve_undo(job, count);
    uint64_t *starts = r ? NULL : malloc((count + 1) * sizeof(*starts));
    size_t n = 0;
    for (struct vma *vma = bo->vmas; starts && vma; vma = vma->next_in_bo) {
        if (vma->vm == vm && vma_find(vm->root, vma->start) == vma)
            starts[n++] = vma->start;
    }
    pthread_mutex_unlock(&bo->dev->lock);
    if (!starts)
        return -ENOMEM;
    for (size_t i = 0; i < n && !r; i++) {
        const struct vma *vma = vma_find(vm->root, starts[i]);
        r = replace(job, vma->start, vma->end, NULL);
    }
    free(starts);
    return r;
}

/* Whole mappings that meet the range. Only the first with an object gets the region asked for, the others system
   memory: so does the driver. */
static int prefetch(struct bind_job *job, const struct drm_xe_vm_bind_op *args)
{
    struct vm *vm = job->vm;
    uint64_t end = args->addr + args->range;
    uint32_t region = args->prefetch_mem_region_instance;
    struct vma *vma = vma_find_from(vm->root, args->addr);
    for (; vma && vma->start < end; vma = vma_find_from(vm->root, vma->end)) {
        job->num_pt_ops++;
        if (vma->flags & VMA_USERPTR) {
            int r = userptr_check(vma->offset, vma->end - vma->start, !(vma->flags & VMA_READONLY));
            if (r)
                return r;
        } else if (vma->bo) {
            /* "As madvise said" is undefined for objects in the driver; here it leaves them where they are: a guess. */
            if (region != (uint32_t)DRM_XE_CONSULT_MEM_ADVISE_PREF_LOC && !(vma->bo->placement >> region & 1))
                return -EINVAL;
            region = REGION_SYSTEM;
        }
    }
    return 0;
}

int bind_op_apply(struct bind_job *job, const struct bind_op *op)
{
    const struct drm_xe_vm_bind_op *args = op->args;
    switch (args->op) {
    case DRM_XE_VM_BIND_OP_MAP:
    case DRM_XE_VM_BIND_OP_MAP_USERPTR:
        return map(job, op);
    case DRM_XE_VM_BIND_OP_UNMAP:
        return replace(job, args->addr, args->addr + args->range, NULL);
    case DRM_XE_VM_BIND_OP_UNMAP_ALL:
        return unmap_all(job, op->bo);
    default:
        return prefetch(job, args);
    }
}

void bind_undo_all(struct bind_job *job)
{
    struct vm *vm = job->vm;
    while (job->num_undos) {
        struct bind_undo *undo = &job->undos[--job->num_undos];
        struct vma *added = vma_cut(&vm->root, undo->start, undo->end);
        vm->num_vmas += vma_count(undo->removed) - vma_count(added);
        vma_paste(&vm->root, undo->removed);
        vma_free_tree(vm->dev, added);
    }
}

void bind_forget_removed(struct bind_job *job)
{
    for (size_t i = 0; i < job->num_undos; i++)
        vma_free_tree(job->vm->dev, job->undos[i].removed);
    free(job->undos);
    job->undos = NULL;
    job->num_undos = 0;
}
