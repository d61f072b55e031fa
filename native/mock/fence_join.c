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

struct fence *fence_join(struct fence **fences, uint32_t count)
{
    if (count == 0)
        return fence_stub();
    if (count == 1)
        return fence_get(fences[0]);
    struct join *join = calloc(1, sizeof(*join) + count * sizeof(join->parts[0]));
    struct fence *result = fence_new();
    if (!join || !result) {
        free(join);
        fence_put(result);
        return NULL;
    }
    join->result = fence_get(result);
    atomic_init(&join->left, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        join->parts[i].join = join;
        if (!fence_add_callback(fences[i], &join->parts[i].cb, part_signalled))
            join_done(join, fences[i]->error);
    }
    join_done(join, 0);
    return result;
}
