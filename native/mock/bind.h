#pragma once
/* Between bind.c (what is asked, is it allowed), bind_ops.c (what it changes), bind_job.c (when it happens). */
#include "core.h"

/* One operation, checked. */
struct bind_op {
    const struct drm_xe_vm_bind_op *args;
    struct bo *bo; /* a reference, or NULL */
};

/* What an operation removed: within [start, end) the VM was `removed` before and is something else since. */
struct bind_undo {
    uint64_t start, end;
    struct vma *removed;
};

/* A VM_BIND call under way. */
struct bind_job {
    struct bind_job *next; /* of vm->jobs */
    struct vm *vm;
    uint32_t queue_id;
    uint64_t serial;
    struct bind_undo *undos;
    size_t num_undos, max_undos;
    uint64_t start, end;      /* hull of all undos, and of the page tables that come or go with them */
    uint64_t num_pt_ops;      /* page-table operations, as the kernel counts them */
    uint64_t num_leaf_tables; /* 2 MiB steps touched */
    bool unmaps;
    bool may_wait; /* so that it matters which older binds it meets */
    bool user_fence;
    uint64_t user_fence_addr, user_fence_value;
    struct fence *done;
    atomic_uint num_dependencies;
    struct bind_dependency *dependencies;
};

/* Applies one operation to the VM's mappings and remembers how to undo it. vm->lock held. */
int bind_op_apply(struct bind_job *job, const struct bind_op *op);
/* Undoes everything, newest first. vm->lock held; frees nothing of job itself. */
void bind_undo_all(struct bind_job *job);
/* Frees what was removed for good. No lock held. */
void bind_forget_removed(struct bind_job *job);

/* Queues the job behind syncs and older work or, if there is nothing to wait for, lets it happen at once. Takes over
   job and its reference of vm. vm->lock held, and released here. */
void bind_job_submit(struct bind_job *job, struct sync_list *syncs);
/* Whether the job would have to wait. vm->lock held. */
bool bind_job_must_wait(const struct bind_job *job, const struct sync_list *syncs);
/* The mapping that the page tables show at va, which may lag behind the VM's own; *limit is where that stops being so.
 * vm->lock held. */
struct vma *bind_effective(struct vm *vm, uint64_t va, uint64_t *limit);
/* Whether the bind with this serial still waits. vm->lock held. */
bool bind_job_is_pending(const struct vm *vm, uint64_t serial);
