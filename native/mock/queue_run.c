/* A job on its thread: waits for its in-fences, runs its batches, writes its user fence. */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "queue.h"
#include "vm_fault.h"

/* A job of a VM that is not long-running must end within it. The kernel's limit is 5 s of run time, looked at every 5 s
   from the submission on: what ran for a little less gets more. ZE_IPC_MOCK_JOB_TIMEOUT_MS changes it, for tests. */
#define JOB_TIMEOUT_MS 6000

static int64_t job_timeout_ns(void)
{
    const char *text = getenv("ZE_IPC_MOCK_JOB_TIMEOUT_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    return (ms > 0 ? ms : JOB_TIMEOUT_MS) * INT64_C(1000000);
}

/* ---- the streamer's view of the VM ---- */

static void drop_span(struct gpu_span *span)
{
    if (span->size)
        vm_span_put(span);
    span->size = 0;
}

static bool atomics_allowed(struct vm *vm, uint64_t address)
{
    pthread_mutex_lock(&vm->lock);
    struct vma *vma = vma_first(vm, address);
    bool allowed = !vma || vma->start > address || vma->atomic != DRM_XE_ATOMIC_CPU;
    pthread_mutex_unlock(&vm->lock);
    return allowed;
}

static bool queue_span(void *owner, uint64_t address, uint64_t size, enum gpu_access access, struct gpu_bytes *bytes,
                       struct gpu_fault *fault)
{
    struct exec_queue *queue = owner;
    struct gpu_span *span = &queue->held[queue->next_held];
    *fault = (struct gpu_fault){.address = address, .access = access, .type = GPU_FAULT_NOT_PRESENT};
    if (access == GPU_ATOMIC && !atomics_allowed(queue->vm, address)) {
        fault->type = GPU_FAULT_ATOMIC;
        return false;
    }
    drop_span(span);
    int r = vm_span(queue->vm, address, size, access != GPU_READ, span);
    if (r) {
        span->size = 0;
        if (r == -EPERM)
            fault->type = GPU_FAULT_WRITE;
        return false;
    }
    queue->next_held = (queue->next_held + 1) % ARRAY_SIZE(queue->held);
    bytes->bytes = span->cpu;
    bytes->size = span->size;
    return true;
}

static void queue_release(void *owner)
{
    struct exec_queue *queue = owner;
    for (unsigned i = 0; i < ARRAY_SIZE(queue->held); i++)
        drop_span(&queue->held[i]);
}

static enum streamer_result queue_poll(void *owner)
{
    struct exec_queue *queue = owner;
    if (atomic_load(&queue->state) != QUEUE_OPEN)
        return STREAMER_KILLED;
    if (queue->deadline != FOREVER && now_ns() > queue->deadline)
        return STREAMER_TIMEOUT;
    return STREAMER_RUNNING;
}

static void queue_relax(void *owner, unsigned microseconds)
{
    struct exec_queue *queue = owner;
    unsigned seen = waiter_seen(&queue->waiter);
    if (atomic_load(&queue->state) == QUEUE_OPEN)
        waiter_wait(&queue->waiter, seen, now_ns() + (int64_t)microseconds * 1000);
}

static void queue_interrupt(void *owner)
{
    struct exec_queue *queue = owner;
    user_fence_written(queue->dev);
}

static bool make_streamer(struct exec_queue *queue)
{
    if (queue->streamer)
        return true;
    queue->streamer = malloc(sizeof(*queue->streamer));
    if (!queue->streamer)
        return false;
    streamer_init(queue->streamer, queue->engine_class, queue->instance);
    queue->streamer->memory = (struct gpu_memory){.span = queue_span, .release = queue_release, .owner = queue};
    queue->streamer->control = (struct streamer_control){
        .poll = queue_poll, .relax = queue_relax, .interrupt = queue_interrupt, .owner = queue};
    return true;
}

/* ---- the job ---- */

struct in_wait {
    struct fence_cb cb;
    struct exec_queue *queue;
    atomic_bool called; /* the last thing the callback touches */
};

static void in_fence_signalled(struct fence *fence, struct fence_cb *cb)
{
    (void)fence;
    struct in_wait *wait = container_of(cb, struct in_wait, cb);
    waiter_kick(&wait->queue->waiter);
    atomic_store_explicit(&wait->called, true, memory_order_release);
}

/* False: the queue is not open any more. */
static bool wait_for(struct exec_queue *queue, struct fence *fence)
{
    struct in_wait wait = {.queue = queue};
    bool open = true;
    if (!fence_add_callback(fence, &wait.cb, in_fence_signalled))
        return true;
    while (!fence_is_signalled(fence)) {
        unsigned seen = waiter_seen(&queue->waiter);
        open = atomic_load(&queue->state) == QUEUE_OPEN;
        if (!open)
            break;
        if (!fence_is_signalled(fence))
            waiter_wait(&queue->waiter, seen, FOREVER);
    }
    if (!fence_remove_callback(fence, &wait.cb))
        while (!atomic_load_explicit(&wait.called, memory_order_acquire))
            sched_yield();
    return open;
}

/* The ban, and one line that says what the kernel would log. A destroyed queue stays destroyed. */
__attribute__((format(printf, 2, 3))) static void ban(struct exec_queue *queue, const char *format, ...)
{
    int open = QUEUE_OPEN;
    char why[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    if (!atomic_compare_exchange_strong(&queue->state, &open, QUEUE_BANNED))
        return;
    fprintf(stderr, "mock xe%u: exec queue %u banned: %s\n", queue->dev->index, queue->id, why);
    user_fence_written(queue->dev);
}

static void end_badly(struct exec_queue *queue, enum streamer_result result)
{
    static const char *const access[] = {"read of", "write to", "atomic on"};
    static const char *const reason[] = {"nothing is mapped there", "the mapping is read-only",
                                         "atomics are not allowed there"};
    struct streamer *streamer = queue->streamer;
    switch (result) {
    case STREAMER_FAULT:
        vm_add_fault(queue->vm, &streamer->fault);
        ban(queue, "page fault, %s 0x%llx: %s", access[streamer->fault.access],
            (unsigned long long)streamer->fault.address, reason[streamer->fault.type]);
        break;
    case STREAMER_TIMEOUT:
        ban(queue, "its batch did not end in time (at 0x%llx)", (unsigned long long)streamer->address);
        break;
    case STREAMER_REFUSED:
        ban(queue, "%s", streamer->reason);
        break;
    default:
        break;
    }
}

static void write_user_fence(struct exec_queue *queue, const struct sync_entry *entry)
{
    struct streamer *streamer = queue->streamer;
    streamer->result = STREAMER_RUNNING;
    bool written = streamer_store(streamer, entry->addr, 8, entry->point);
    streamer->memory.release(streamer->memory.owner);
    if (!written)
        end_badly(queue, streamer->result);
}

void queue_run_job(struct exec_queue *queue, struct job *job)
{
    for (uint32_t i = 0; i < job->syncs.count; i++)
        if (!job->syncs.entries[i].signal && !wait_for(queue, job->syncs.entries[i].fence))
            return;
    if (job->after && !wait_for(queue, job->after))
        return;
    if (!make_streamer(queue)) {
        ban(queue, "no memory");
        return;
    }
    queue->deadline = vm_is_lr(queue->vm) ? FOREVER : now_ns() + job_timeout_ns();
    for (uint32_t i = 0; i < job->num_batches; i++) {
        uint64_t began = streamer_ticks();
        atomic_store(&queue->batch_began, began);
        enum streamer_result result = streamer_run(queue->streamer, job->batches[i]);
        atomic_store(&queue->batch_began, 0);
        atomic_fetch_add(&queue->ticks, streamer_ticks() - began);
        if (result != STREAMER_DONE) {
            end_badly(queue, result);
            return;
        }
    }
    if (job->syncs.user_fence)
        write_user_fence(queue, job->syncs.user_fence);
    user_fence_written(queue->dev); /* a job ends with an interrupt, which wakes all who wait for memory */
}
