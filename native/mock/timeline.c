/* Points of timelines, as the kernel's dma_fence_chain has them. A point is a fence like others: a syncobj holds the
   last one, a sync_file or a second syncobj may hold any, and whoever holds one has all before it, too. */
#include <stdlib.h>

#include "syncobj.h"

struct fence *timeline_add(struct fence *before, struct fence *fence, uint64_t number)
{
    static atomic_uint_fast64_t lines;
    struct fence *result = fence_new(), *own = fence_join(&fence, 1);
    struct fence_point *point = calloc(1, sizeof(*point));
    if (!result || !own || !point) {
        fence_put(result);
        fence_put(own);
        free(point);
        return NULL;
    }
    const struct fence_point *last = before ? before->point : NULL;
    bool grows = last && number > last->number;
    bool pending = before && !fence_is_signalled(before);
    /* A number that does not grow counts as the last one, on a line of its own. */
    *point = (struct fence_point){.number = last && !grows ? last->number : number,
                                  .number_before = grows ? last->number : 0,
                                  .line = grows ? last->line : atomic_fetch_add(&lines, 1),
                                  .own = own,
                                  .before = pending ? fence_get(before) : NULL};
    result->point = point;
    struct fence *both[] = {own, before};
    if (fence_follow(result, both, pending ? 2 : 1))
        return result;
    fence_put(result);
    return NULL;
}

bool timeline_is_over(struct fence *fence)
{
    if (fence_is_signalled(fence))
        return true;
    if (fence->point)
        return timeline_is_over(fence->point->own) && !timeline_before(fence->point);
    uint32_t left = fence->group ? fence->group->count : 1;
    while (fence->group && left && fence_is_signalled(fence->group->fences[left - 1]))
        left--;
    return !left;
}

struct fence *timeline_before(struct fence_point *point)
{
    while (point->before) {
        struct fence *before = point->before, *earlier = before->point ? before->point->before : NULL;
        if (!timeline_is_over(before->point ? before->point->own : before))
            break;
        point->before = earlier ? fence_get(earlier) : NULL;
        fence_put(before);
    }
    return point->before;
}

/* The point itself if it is on the line. */
static struct fence_point *on_line(struct fence *fence, uint64_t line)
{
    return fence && fence->point && fence->point->line == line ? fence->point : NULL;
}

struct fence *timeline_find(struct fence *last, uint64_t number)
{
    if (!last || number == 0)
        return last ? fence_get(last) : NULL;
    if (!last->point || last->point->number < number)
        return NULL;
    /* Of another line, which came before, all is waited for. */
    struct fence *found = last;
    struct fence_point *point;
    while ((point = on_line(found, last->point->line)) && point->number_before >= number)
        found = timeline_before(point);
    return found ? fence_get(found) : fence_stub();
}

uint64_t timeline_happened(struct fence *last)
{
    if (timeline_is_over(last))
        return last->point->number;
    struct fence_point *point = last->point, *earlier;
    while ((earlier = on_line(timeline_before(point), last->point->line)))
        point = earlier;
    return point->number_before;
}
