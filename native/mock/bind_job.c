/* When a bind happens: at once, or when what it must wait for has happened. Until then the page tables show the old
 * mappings. */
#include <errno.h>
#include <stdlib.h>

#include "bind.h"
#include "vma.h"

struct bind_dependency {
    struct fence_cb cb;
    struct fence *fence;
    struct bind_job *job;
};

bool bind_job_is_pending(const struct vm *vm, uint64_t serial)
{
    const struct bind_job *job = vm->jobs;
    while (job && job->serial != serial)
        job = job->next;
    return job;
}

static bool conflicts(const struct bind_job *job, const struct bind_job *older)
{
    return older->queue_id == job->queue_id || (older->start < job->end && job->start < older->end);
}

/* Unbinds of a dma-fence VM wait for what may still use the mappings. */
static bool waits_for_execs(const struct bind_job *job)
{
    return job->unmaps && !vm_is_lr(job->vm);
}

/* Everything the job waits for; with dependencies == NULL only counts. */
static unsigned collect(const struct bind_job *job, const struct sync_list *syncs, struct bind_dependency *dependencies)
{
    unsigned count = 0;
    const struct vm *vm = job->vm;
#define DEPEND(on)                                                                                                     \
    do {                                                                                                               \
        if (dependencies)                                                                                              \
            dependencies[count].fence = fence_get(on);                                                                 \
        count++;                                                                                                       \
    } while (0)
    for (uint32_t i = 0; i < syncs->count; i++) {
        if (syncs->entries[i].fence && !fence_is_signalled(syncs->entries[i].fence))
            DEPEND(syncs->entries[i].fence);
    }
    for (const struct bind_job *older = vm->jobs; older; older = older->next) {
        if (conflicts(job, older))
            DEPEND(older->done);
    }
    for (uint32_t i = 0; waits_for_execs(job) && i < vm->num_execs; i++) {
        if (!fence_is_signalled(vm->execs[i]))
            DEPEND(vm->execs[i]);
    }
#undef DEPEND
    return count;
}

bool bind_job_must_wait(const struct bind_job *job, const struct sync_list *syncs)
{
    return collect(job, syncs, NULL) > 0;
}

static void free_job(struct bind_job *job)
{
    for (unsigned i = 0; job->dependencies && job->dependencies[i].fence; i++)
        fence_put(job->dependencies[i].fence);
    free(job->dependencies);
    fence_put(job->done);
    vm_put(job->vm);
    free(job);
}

/* No lock held. */
static void finish(struct bind_job *job)
{
    bind_forget_removed(job);
    if (job->user_fence) {
        store_user_u64(job->user_fence_addr, job->user_fence_value); /* a page gone meanwhile is the caller's loss */
        user_fence_written(job->vm->dev);
    }
    if (job->done)
        fence_signal(job->done, 0);
    free_job(job);
}

static void complete(struct bind_job *job)
{
    struct vm *vm = job->vm;
    pthread_mutex_lock(&vm->lock);
    struct bind_job **link = &vm->jobs;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    if (!job->next)
        vm->jobs_tail = link;
    vm->num_user_fences -= job->user_fence;
    pthread_mutex_unlock(&vm->lock);
    finish(job);
}

static void one_less(struct bind_job *job)
{
    if (atomic_fetch_sub(&job->num_dependencies, 1) == 1)
        complete(job);
}

static void dependency_signalled(struct fence *fence, struct fence_cb *cb)
{
    (void)fence;
    one_less(((struct bind_dependency *)cb)->job);
}

void bind_job_submit(struct bind_job *job, struct sync_list *syncs)
{
    struct vm *vm = job->vm;
    unsigned count = collect(job, syncs, NULL);
    if (count) { /* one more, NULL, as end mark; no memory: do not wait rather than half do */
        job->dependencies = calloc(count + 1, sizeof(*job->dependencies));
        job->done = fence_new();
        if (!job->dependencies || !job->done)
            count = 0;
    }
    if (!count) {
        pthread_mutex_unlock(&vm->lock);
        struct fence *stub = fence_stub();
        sync_install(syncs, stub);
        fence_put(stub);
        finish(job);
        return;
    }
    /* A fence may signal between counting and collecting: fewer are collected, never more. */
    unsigned collected = collect(job, syncs, job->dependencies);
    atomic_init(&job->num_dependencies, collected + 1);
    *vm->jobs_tail = job;
    vm->jobs_tail = &job->next;
    vm->num_user_fences += job->user_fence;
    struct fence *done = fence_get(job->done);
    pthread_mutex_unlock(&vm->lock);

    sync_install(syncs, done);
    fence_put(done);
    for (unsigned i = 0; i < collected; i++) {
        job->dependencies[i].job = job;
        if (!fence_add_callback(job->dependencies[i].fence, &job->dependencies[i].cb, dependency_signalled))
            one_less(job);
    }
    one_less(job); /* this function's own: nothing completed before all was set up */
}

struct vma *bind_effective(struct vm *vm, uint64_t va, uint64_t *limit)
{
    *limit = vm->size;
    if (vm->closed)
        return NULL;
    struct vma *tree = vm->root;
    for (const struct bind_job *job = vm->jobs; job; job = job->next) {
        for (size_t i = 0; i < job->num_undos; i++) {
            const struct bind_undo *undo = &job->undos[i];
            if (va >= undo->start && va < undo->end) {
                tree = undo->removed;
                if (undo->end < *limit)
                    *limit = undo->end;
                goto found;
            }
            if (undo->start > va && undo->start < *limit)
                *limit = undo->start;
        }
    }
found:;
    struct vma *vma = vma_find_from(tree, va);
    if (vma && vma->start > va) {
        if (vma->start < *limit)
            *limit = vma->start;
        return NULL;
    }
    if (vma && vma->end < *limit)
        *limit = vma->end;
    return vma;
}
