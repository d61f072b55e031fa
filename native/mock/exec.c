/* EXEC. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exec_handlers.h"
#include "queue.h"
#include "residency.h"

/* A user fence of an exec without a batch: written when the job before is done, and by the CPU, as for a bind (a guess:
   nobody else is there to do it). */
struct cpu_fence {
    struct fence_cb cb;
    struct device *dev;
    uint64_t address, value;
};

static void write_cpu_fence(struct fence *fence, struct fence_cb *cb)
{
    (void)fence;
    struct cpu_fence *write = container_of(cb, struct cpu_fence, cb);
    if (!store_user_u64(write->address, write->value))
        user_fence_written(write->dev);
    free(write);
}

/* Out-syncs without a batch: they follow the job before. */
static int exec_nothing(struct exec_queue *queue, struct sync_list *syncs)
{
    if (syncs->num_in)
        return -EOPNOTSUPP;
    struct cpu_fence *write = NULL;
    if (syncs->user_fence && !(write = calloc(1, sizeof(*write))))
        return -ENOMEM;
    struct fence *last = queue_last_fence(queue);
    int r = sync_install(syncs, last);
    if (write) {
        *write = (struct cpu_fence){
            .dev = queue->dev, .address = syncs->user_fence->addr, .value = syncs->user_fence->point};
        if (!fence_add_callback(last, &write->cb, write_cpu_fence))
            write_cpu_fence(last, &write->cb);
    }
    fence_put(last);
    return r;
}

static bool vm_is_dead(struct vm *vm)
{
    pthread_mutex_lock(&vm->lock);
    bool dead = vm->closed || vm->banned;
    pthread_mutex_unlock(&vm->lock);
    return dead;
}

/* Takes the job's syncs on success. */
static int submit(struct exec_queue *queue, struct job *job)
{
    if (vm_is_dead(queue->vm))
        return -ECANCELED;
    int r = residency_check_exec(queue->vm);
    if (r)
        return r;
    job->done = fence_new();
    if (!job->done)
        return -ENOMEM;
    struct fence *done = fence_get(job->done);
    if (vm_is_fault_mode(queue->vm))
        job->after = queue_older_dma_jobs(queue);
    r = vm_is_lr(queue->vm) ? 0 : vm_add_exec(queue->vm, done);
    if (!r)
        r = sync_install(&job->syncs, done);
    if (!r)
        r = queue_push(queue, job);
    if (r) {
        fence_signal(done, r);
        fence_put(job->done);
        job->done = NULL;
    }
    fence_put(done);
    return r;
}

static int exec(struct drm_file *file, struct exec_queue *queue, const struct drm_xe_exec *args)
{
    if (queue->engine_class == DRM_XE_ENGINE_CLASS_VM_BIND)
        return -EINVAL;
    if (args->num_batch_buffer && args->num_batch_buffer != queue->width)
        return -EINVAL;
    if (queue_is_reset(queue))
        return -ECANCELED;
    pthread_mutex_lock(&queue_lock);
    bool full = queue->num_jobs >= QUEUE_JOBS_MAX;
    pthread_mutex_unlock(&queue_lock);
    if (full)
        return -EAGAIN;
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return -ENOMEM;
    int r =
        sync_parse(file, args->syncs, args->num_syncs, SYNC_EXEC | (vm_is_lr(queue->vm) ? SYNC_LR : 0), &job->syncs);
    if (r) {
        free(job);
        return r;
    }
    job->num_batches = args->num_batch_buffer;
    job->batches[0] = args->address;
    if (queue->width > 1)
        r = copy_from_user(job->batches, args->address, queue->width * sizeof(job->batches[0]));
    if (!r)
        r = job->num_batches ? submit(queue, job) : exec_nothing(queue, &job->syncs);
    if (r || !args->num_batch_buffer)
        job_free(job);
    return r;
}

int exec_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_exec *args = data;
    if (args->extensions || args->pad[0] || args->pad[1] || args->pad[2] || args->reserved[0] || args->reserved[1])
        return -EINVAL;
    if (args->num_syncs > DRM_XE_MAX_SYNCS)
        return -EINVAL;
    struct exec_queue *queue = queue_lookup(file, args->exec_queue_id);
    if (!queue)
        return -ENOENT;
    int r = exec(file, queue, args);
    queue_put(queue);
    return r;
}
