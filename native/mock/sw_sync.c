#include "sw_sync.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "sync_file.h"
#include "syncobj.h"

#define SW_SYNC_IOC_CREATE_FENCE 0xc0285700
#define SW_SYNC_IOC_INC 0x40045701

struct sw_sync_create_fence_data {
    uint32_t value;
    char name[32];
    int32_t fence;
};

struct step {
    struct step *next;
    uint32_t value;
    struct fence *fence;
};

struct timeline {
    uint32_t value;
    struct step *steps;
};

/* A leaf; a fork takes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct timeline **timelines;
static uint32_t num_timelines;

/* The open file description remembers which timeline it is by its position, which nothing else uses: so duplicates are
   the same one. A timeline stays when its last descriptor is closed. lock held. */
static struct timeline *timeline_of(int fd)
{
    off_t number = lseek(fd, 0, SEEK_CUR);
    if (number < 0 || number > num_timelines)
        return NULL;
    if (number)
        return timelines[number - 1];
    struct timeline **more = realloc(timelines, (num_timelines + 1) * sizeof(*more));
    struct timeline *timeline = calloc(1, sizeof(*timeline));
    if (more)
        timelines = more;
    if (!more || !timeline || lseek(fd, (off_t)num_timelines + 1, SEEK_SET) < 0) {
        free(timeline);
        return NULL;
    }
    return timelines[num_timelines++] = timeline;
}

/* Values wrap around. */
static bool is_reached(const struct timeline *timeline, uint32_t value)
{
    return (int32_t)(value - timeline->value) <= 0;
}

/* A fence for the value, NULL without memory. */
static struct fence *make_fence(struct timeline *timeline, uint32_t value)
{
    if (is_reached(timeline, value))
        return fence_stub();
    struct step *step = calloc(1, sizeof(*step));
    struct fence *fence = fence_new();
    if (!step || !fence) {
        free(step);
        fence_put(fence);
        return NULL;
    }
    *step = (struct step){.next = timeline->steps, .value = value, .fence = fence_get(fence)};
    timeline->steps = step;
    return fence;
}

static int create_fence(int fd, void *argument)
{
    struct sw_sync_create_fence_data args;
    if (copy_from_user(&args, (uint64_t)argument, sizeof(args)))
        return -EFAULT;
    pthread_mutex_lock(&lock);
    struct timeline *timeline = timeline_of(fd);
    struct fence *fence = timeline ? make_fence(timeline, args.value) : NULL;
    pthread_mutex_unlock(&lock);
    if (!fence)
        return -ENOMEM;
    args.fence = sync_file_export(fence);
    fence_put(fence);
    if (args.fence < 0)
        return args.fence;
    if (copy_to_user((uint64_t)argument, &args, sizeof(args))) {
        close(args.fence);
        return -EFAULT;
    }
    return 0;
}

static int increment(int fd, void *argument)
{
    uint32_t by;
    struct step *reached = NULL;
    if (copy_from_user(&by, (uint64_t)argument, sizeof(by)))
        return -EFAULT;
    pthread_mutex_lock(&lock);
    struct timeline *timeline = timeline_of(fd);
    if (timeline)
        timeline->value += by;
    struct step **link = timeline ? &timeline->steps : &reached;
    while (*link) {
        struct step *step = *link;
        if (is_reached(timeline, step->value)) {
            *link = step->next;
            step->next = reached;
            reached = step;
        } else {
            link = &step->next;
        }
    }
    pthread_mutex_unlock(&lock);
    while (reached) {
        struct step *step = reached;
        reached = step->next;
        fence_signal(step->fence, 0);
        fence_put(step->fence);
        free(step);
    }
    return timeline ? 0 : -ENOMEM;
}

int sw_sync_ioctl(int fd, unsigned long request, void *argument)
{
    switch ((uint32_t)request) {
    case SW_SYNC_IOC_CREATE_FENCE:
        return create_fence(fd, argument);
    case SW_SYNC_IOC_INC:
        return increment(fd, argument);
    default:
        return -ENOTTY;
    }
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&lock);
}

static void fork_release(void)
{
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(fork_prepare, fork_release, fork_release);
}
