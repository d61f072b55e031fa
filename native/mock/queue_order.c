/* Who waits for whose jobs, beyond what programs ask for with fences. */
#include <stdlib.h>

#include "queue.h"
#include "syncobj.h"

/* The jobs of dma-fence VMs that are not done. Taken one by one, so that nothing is allocated under the leaf lock. */
struct unfinished {
    struct vm *vm;
    struct fence *fence;
};

struct filter {
    const struct exec_queue *group; /* engines that share a scheduling mode with this queue's; NULL: all */
};

/* Engines that the kernel switches together between page-fault mode and dma-fence mode. */
static int mode_group(const struct exec_queue *queue)
{
    switch (queue->engine_class) {
    case DRM_XE_ENGINE_CLASS_COPY:
        return 0;
    case DRM_XE_ENGINE_CLASS_RENDER:
    case DRM_XE_ENGINE_CLASS_COMPUTE:
        return 1;
    default:
        return 2;
    }
}

static bool counts(const struct exec_queue *queue, const struct filter *filter)
{
    if (!queue->last || fence_is_signalled(queue->last) || vm_is_lr(queue->vm))
        return false;
    return !filter->group || (queue->dev == filter->group->dev && queue->gt == filter->group->gt &&
                              mode_group(queue) == mode_group(filter->group));
}

/* All of them, *count many, with references; NULL with *count 0 also when memory is short. */
static struct unfinished *collect(const struct filter *filter, uint32_t *count)
{
    struct unfinished *list = NULL;
    for (uint32_t room = 0;;) {
        uint32_t found = 0;
        pthread_mutex_lock(&queue_lock);
        for (struct exec_queue *queue = live_queues; queue; queue = queue->next_live) {
            if (!counts(queue, filter))
                continue;
            if (found < room)
                list[found] = (struct unfinished){.vm = queue->vm, .fence = queue->last};
            found++;
        }
        for (uint32_t i = 0; i < found && found <= room; i++) {
            vm_get(list[i].vm);
            fence_get(list[i].fence);
        }
        pthread_mutex_unlock(&queue_lock);
        if (found <= room) {
            *count = found;
            return list;
        }
        free(list);
        room = found + 8;
        list = malloc(room * sizeof(*list));
        *count = 0;
        if (!list)
            return NULL;
    }
}

static void put(struct unfinished *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        fence_put(list[i].fence);
        vm_put(list[i].vm);
    }
    free(list);
}

struct fence *queue_older_dma_jobs(const struct exec_queue *queue)
{
    uint32_t count;
    const struct filter filter = {.group = queue};
    struct unfinished *list = collect(&filter, &count);
    struct fence **fences = count ? malloc(count * sizeof(*fences)) : NULL;
    for (uint32_t i = 0; fences && i < count; i++)
        fences[i] = list[i].fence;
    struct fence *fence = count && fences ? fence_join(fences, count) : NULL;
    free(fences);
    put(list, count);
    return fence;
}

/* Whether the VM shows program memory of [start, end) to the GPU. */
static bool maps_program_memory(struct vm *vm, uint64_t start, uint64_t end)
{
    bool found = false;
    pthread_mutex_lock(&vm->lock);
    for (struct vma *vma = vma_first(vm, 0); vma && !found; vma = vma_next(vm, vma))
        found = vma->flags & VMA_USERPTR && vma->offset < end && vma->offset + (vma->end - vma->start) > start;
    pthread_mutex_unlock(&vm->lock);
    return found;
}

void program_memory_changes(uint64_t address, uint64_t size)
{
    uint32_t count;
    const struct filter filter = {0};
    if (atomic_load_explicit(&dma_jobs, memory_order_relaxed) == 0)
        return;
    struct unfinished *list = collect(&filter, &count);
    for (uint32_t i = 0; i < count; i++)
        if (maps_program_memory(list[i].vm, address, address + size))
            while (fence_wait(list[i].fence, FOREVER)) {
            }
    put(list, count);
}
