/* Many fences as one. */
#include <stdlib.h>

#include "syncobj.h"

struct join_part {
    struct fence_cb cb;
    struct join *join;
};

struct join {
    atomic_uint left;
    atomic_int error;
    struct fence *result;
    struct join_part parts[];
};

static void join_done(struct join *join, int error)
{
    int none = 0;
    if (error)
        atomic_compare_exchange_strong(&join->error, &none, error);
    if (atomic_fetch_sub_explicit(&join->left, 1, memory_order_acq_rel) != 1)
        return;
    fence_signal(join->result, atomic_load(&join->error));
    fence_put(join->result);
    free(join);
}

static void part_signalled(struct fence *fence, struct fence_cb *cb)
{
    join_done(container_of(cb, struct join_part, cb)->join, fence->error);
}

bool fence_follow(struct fence *result, struct fence **fences, uint32_t count)
{
    struct join *join = calloc(1, sizeof(*join) + count * sizeof(join->parts[0]));
    if (!join)
        return false;
    join->result = fence_get(result);
    atomic_init(&join->left, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        join->parts[i].join = join;
        if (!fence_add_callback(fences[i], &join->parts[i].cb, part_signalled))
            join_done(join, fences[i]->error);
    }
    join_done(join, 0);
    return true;
}

/* What a fence stands for that is pending or failed: the fences it was joined from, of a point those before it, too.
   References, or without `found` just how many there are. syncobj_lock held. */
static uint32_t take_apart(struct fence *fence, struct fence **found)
{
    uint32_t count = 0;
    while (fence) {
        struct fence *own = fence->point ? fence->point->own : fence;
        struct fence **fences = own->group ? own->group->fences : &own;
        for (uint32_t i = 0; i < (own->group ? own->group->count : 1); i++) {
            if (fence_is_signalled(fences[i]) && !fences[i]->error)
                continue;
            if (found)
                found[count] = fence_get(fences[i]);
            count++;
        }
        fence = fence->point ? timeline_before(fence->point) : NULL;
    }
    return count;
}

static struct fence_group *group_of(struct fence **fences, uint32_t count)
{
    uint32_t most = 0;
    pthread_mutex_lock(&syncobj_lock);
    for (uint32_t i = 0; i < count; i++)
        most += take_apart(fences[i], NULL);
    struct fence_group *group = calloc(1, sizeof(*group) + most * sizeof(group->fences[0]));
    for (uint32_t i = 0; group && i < count; i++)
        group->count += take_apart(fences[i], group->fences + group->count);
    pthread_mutex_unlock(&syncobj_lock);
    return group;
}

struct fence *fence_join(struct fence **fences, uint32_t count)
{
    if (count == 1 && !fences[0]->point)
        return fence_get(fences[0]);
    struct fence *result = fence_new();
    if (!result)
        return NULL;
    struct fence_group *group = result->group = group_of(fences, count);
    if (group && group->count > 1 && fence_follow(result, group->fences, group->count))
        return result;
    struct fence *only = !group || group->count > 1 ? NULL : group->count ? fence_get(group->fences[0]) : fence_stub();
    fence_put(result);
    return only;
}
