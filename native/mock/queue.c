/* Exec queues: their life, their thread, DESTROY and the properties. */
#include "queue.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "dma_buf_fences.h"
#include "exec_handlers.h"
#include "sync_file.h"
#include "sync_watch.h"

/* A thread without work stays so long. */
#define IDLE_NS INT64_C(2000000000)
#define TIMER_SLACK_NS 5000

pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
struct exec_queue *live_queues;
atomic_uint dma_jobs;

int thread_start(pthread_t *thread, void *(*main)(void *), void *argument)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return -r;
}

struct exec_queue *queue_new(struct device *dev, struct vm *vm)
{
    struct exec_queue *queue = calloc(1, sizeof(*queue));
    if (!queue)
        return NULL;
    atomic_init(&queue->refs, 1);
    queue->dev = dev;
    queue->vm = vm_get(vm);
    queue->jobs_tail = &queue->jobs;
    pthread_mutex_lock(&queue_lock);
    queue->next_live = live_queues;
    queue->link_live = &live_queues;
    if (live_queues)
        live_queues->link_live = &queue->next_live;
    live_queues = queue;
    pthread_mutex_unlock(&queue_lock);
    return queue;
}

static void queue_get(struct exec_queue *queue)
{
    atomic_fetch_add_explicit(&queue->refs, 1, memory_order_relaxed);
}

void queue_put(struct exec_queue *queue)
{
    if (!queue || atomic_fetch_sub_explicit(&queue->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_lock(&queue_lock);
    *queue->link_live = queue->next_live;
    if (queue->next_live)
        queue->next_live->link_live = queue->link_live;
    pthread_mutex_unlock(&queue_lock);
    fence_put(queue->last);
    vm_put(queue->vm);
    free(queue->streamer);
    free(queue);
}

struct exec_queue *queue_lookup(struct drm_file *file, uint32_t id)
{
    pthread_mutex_lock(&file->lock);
    struct exec_queue *queue = idr_find(&file->queues, id);
    if (queue)
        queue_get(queue);
    pthread_mutex_unlock(&file->lock);
    return queue;
}

struct vm *queue_bind_vm(struct exec_queue *queue)
{
    return queue->engine_class == DRM_XE_ENGINE_CLASS_VM_BIND ? queue->vm : NULL;
}

bool queue_is_reset(struct exec_queue *queue)
{
    return atomic_load(&queue->state) != QUEUE_OPEN;
}

void job_free(struct job *job)
{
    sync_free(&job->syncs);
    fence_put(job->done);
    fence_put(job->after);
    free(job);
}

static struct job *next_job(struct exec_queue *queue)
{
    pthread_mutex_lock(&queue_lock);
    struct job *job = queue->jobs;
    pthread_mutex_unlock(&queue_lock);
    return job;
}

/* The oldest job is over. */
static void finish_job(struct exec_queue *queue, struct job *job, int error)
{
    pthread_mutex_lock(&queue_lock);
    queue->jobs = job->next;
    if (!queue->jobs)
        queue->jobs_tail = &queue->jobs;
    queue->num_jobs--;
    pthread_mutex_unlock(&queue_lock);
    if (!vm_is_lr(queue->vm))
        atomic_fetch_sub(&dma_jobs, 1);
    fence_signal(job->done, error);
    job_free(job);
}

static void *queue_thread(void *argument)
{
    struct exec_queue *queue = argument;
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    for (;;) {
        unsigned seen = waiter_seen(&queue->waiter);
        struct job *job = next_job(queue);
        bool open = atomic_load(&queue->state) == QUEUE_OPEN;
        if (job) {
            if (open)
                queue_run_job(queue, job);
            finish_job(queue, job, atomic_load(&queue->state) == QUEUE_OPEN ? 0 : -ECANCELED);
            continue;
        }
        if (open && waiter_wait(&queue->waiter, seen, now_ns() + IDLE_NS) != -ETIME)
            continue;
        pthread_mutex_lock(&queue_lock);
        bool leave = !queue->jobs;
        if (leave)
            queue->running = false;
        pthread_mutex_unlock(&queue_lock);
        if (leave)
            break;
    }
    waiter_kick(&queue->gone);
    queue_put(queue);
    return NULL;
}

/* queue_lock held. */
static int start_thread(struct exec_queue *queue)
{
    pthread_t thread;
    queue_get(queue);
    int r = thread_start(&thread, queue_thread, queue);
    if (r) {
        atomic_fetch_sub(&queue->refs, 1); /* not the last: the caller has one */
        return -ENOMEM;
    }
    pthread_detach(thread);
    queue->running = true;
    return 0;
}

int queue_push(struct exec_queue *queue, struct job *job)
{
    int r = 0;
    pthread_mutex_lock(&queue_lock);
    if (atomic_load(&queue->state) != QUEUE_OPEN)
        r = -ECANCELED;
    else if (queue->num_jobs >= QUEUE_JOBS_MAX)
        r = -EAGAIN;
    else if (!queue->running)
        r = start_thread(queue);
    if (!r) {
        job->next = NULL;
        *queue->jobs_tail = job;
        queue->jobs_tail = &job->next;
        queue->num_jobs++;
        if (!vm_is_lr(queue->vm))
            atomic_fetch_add(&dma_jobs, 1);
        fence_put(queue->last);
        queue->last = fence_get(job->done);
    }
    pthread_mutex_unlock(&queue_lock);
    if (!r)
        waiter_kick(&queue->waiter);
    return r;
}

struct fence *queue_last_fence(struct exec_queue *queue)
{
    pthread_mutex_lock(&queue_lock);
    struct fence *fence = queue->last ? fence_get(queue->last) : fence_stub();
    pthread_mutex_unlock(&queue_lock);
    return fence;
}

void queue_kill(struct exec_queue *queue)
{
    atomic_store(&queue->state, QUEUE_KILLED);
    waiter_kick(&queue->waiter);
    for (;;) {
        unsigned seen = waiter_seen(&queue->gone);
        pthread_mutex_lock(&queue_lock);
        bool running = queue->running;
        pthread_mutex_unlock(&queue_lock);
        if (!running)
            break;
        waiter_wait(&queue->gone, seen, FOREVER);
    }
    user_fence_written(queue->dev); /* whoever waits with this queue learns that it is gone */
}

/* Engine time used so far, the running batch included. All engines of a wide queue are busy together. */
static uint64_t queue_ticks(struct exec_queue *queue)
{
    uint64_t began = atomic_load(&queue->batch_began);
    return (atomic_load(&queue->ticks) + (began ? streamer_ticks() - began : 0)) * queue->width;
}

void queue_file_ticks(struct drm_file *file, uint64_t ticks[ENGINE_CLASSES])
{
    uint32_t id = 0;
    struct exec_queue *queue;
    pthread_mutex_lock(&file->lock);
    memcpy(ticks, file->engine_ticks, sizeof(file->engine_ticks));
    for (; (queue = idr_next(&file->queues, &id)); id++) {
        if (queue->engine_class < ENGINE_CLASSES)
            ticks[queue->engine_class] += queue_ticks(queue);
    }
    pthread_mutex_unlock(&file->lock);
}

/* Off the file's table: the last use of it by the program. */
static void destroy(struct drm_file *file, struct exec_queue *queue)
{
    queue_kill(queue);
    if (queue->engine_class < ENGINE_CLASSES) {
        pthread_mutex_lock(&file->lock);
        file->engine_ticks[queue->engine_class] += queue_ticks(queue);
        pthread_mutex_unlock(&file->lock);
    }
    if (queue->engine_class != DRM_XE_ENGINE_CLASS_VM_BIND) {
        pthread_mutex_lock(&queue->vm->lock);
        queue->vm->num_queues--;
        pthread_mutex_unlock(&queue->vm->lock);
    }
    queue_put(queue);
}

void queue_file_close(struct drm_file *file)
{
    uint32_t id = 0;
    struct exec_queue *queue;
    /* All at once first, so that none waits for another's time slice. */
    for (; (queue = idr_next(&file->queues, &id)); id++) {
        atomic_store(&queue->state, QUEUE_KILLED);
        waiter_kick(&queue->waiter);
    }
    for (id = 0; (queue = idr_next(&file->queues, &id)); id++)
        destroy(file, queue);
    idr_destroy(&file->queues);
}

int exec_queue_destroy_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_exec_queue_destroy *args = data;
    if (args->pad || args->reserved[0] || args->reserved[1])
        return -EINVAL;
    pthread_mutex_lock(&file->lock);
    struct exec_queue *queue = idr_remove(&file->queues, args->exec_queue_id);
    pthread_mutex_unlock(&file->lock);
    if (!queue)
        return -ENOENT;
    destroy(file, queue);
    return 0;
}

int exec_queue_get_property_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_exec_queue_get_property *args = data;
    if (args->reserved[0] || args->reserved[1])
        return -EINVAL;
    struct exec_queue *queue = queue_lookup(file, args->exec_queue_id);
    if (!queue)
        return -ENOENT;
    int r = args->property == DRM_XE_EXEC_QUEUE_GET_PROPERTY_BAN ? 0 : -EINVAL;
    if (!r)
        args->value = queue_is_reset(queue);
    queue_put(queue);
    return r;
}

/* The one property that can be set later needs queues that share a hardware context, which no profile here has. */
int exec_queue_set_property_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_exec_queue_set_property *args = data;
    if (args->reserved[0] || args->reserved[1])
        return -EINVAL;
    if (args->property != DRM_XE_EXEC_QUEUE_SET_PROPERTY_MULTI_QUEUE_PRIORITY)
        return -EINVAL;
    struct exec_queue *queue = queue_lookup(file, args->exec_queue_id);
    if (!queue)
        return -ENOENT;
    queue_put(queue);
    return -EINVAL;
}

/* ---- fork: threads and jobs stay with the parent; the child's copies of the queues are empty ---- */

void streamer_fork_child(void)
{
    sync_file_fork_child();
    sync_watch_fork_child();
    dma_buf_fences_fork_child();
    atomic_store(&dma_jobs, 0);
    for (struct exec_queue *queue = live_queues; queue; queue = queue->next_live) {
        if (queue->running)
            atomic_fetch_sub(&queue->refs, 1); /* its thread's, which is not here */
        queue->running = false;
        queue->jobs = NULL; /* what they hold is leaked: freeing it could signal what the parent still runs */
        queue->jobs_tail = &queue->jobs;
        queue->num_jobs = 0;
        queue->last = NULL;
        queue->vm->num_execs = 0;
    }
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&queue_lock);
}

static void fork_release(void)
{
    pthread_mutex_unlock(&queue_lock);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(fork_prepare, fork_release, fork_release);
}
