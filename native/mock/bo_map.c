/* CPU mappings of whole objects for the device's own use, cached: the least recently used unpinned ones go. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bo_map.h"
#include "device.h"
#include "gem.h"

#define MAX_UNPINNED 4096

struct bo_view {
    struct bo *bo;
    void *cpu;
    uint64_t size;
    uint32_t pins;
    struct bo_view *newer, *older; /* while unpinned */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bo_view *newest, *oldest;
static uint32_t num_unpinned;

void bo_map_lock(void)
{
    pthread_mutex_lock(&lock);
}

void bo_map_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static void unlink_view(struct bo_view *view)
{
    *(view->newer ? &view->newer->older : &newest) = view->older;
    *(view->older ? &view->older->newer : &oldest) = view->newer;
    view->newer = view->older = NULL;
    num_unpinned--;
}

static void link_newest(struct bo_view *view)
{
    view->older = newest;
    if (newest)
        newest->newer = view;
    newest = view;
    if (!oldest)
        oldest = view;
    num_unpinned++;
}

static void drop_oldest(void)
{
    struct bo_view *view = oldest;
    unlink_view(view);
    view->bo->view = NULL;
    munmap(view->cpu, view->size);
    free(view);
}

static void *map_file(struct bo *bo)
{
    pthread_mutex_lock(&bo->dev->lock);
    int r = bo_make_file_locked(bo, NULL, O_CLOEXEC);
    pthread_mutex_unlock(&bo->dev->lock);
    int fd = r < 0 ? r : bo_open_file(bo, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    void *cpu = mmap(NULL, bo->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    return cpu == MAP_FAILED ? NULL : cpu;
}

/* bo->view belongs to this file's lock. */
static void *pin_existing(struct bo *bo)
{
    struct bo_view *view = bo->view;
    if (!view)
        return NULL;
    if (view->pins++ == 0)
        unlink_view(view);
    return view->cpu;
}

void *bo_map(struct bo *bo)
{
    pthread_mutex_lock(&lock);
    void *cpu = pin_existing(bo);
    pthread_mutex_unlock(&lock);
    if (cpu)
        return cpu;

    struct bo_view *view = calloc(1, sizeof(*view));
    cpu = view ? map_file(bo) : NULL;
    if (!cpu) {
        free(view);
        return NULL;
    }
    *view = (struct bo_view){.bo = bo, .cpu = cpu, .size = bo->size, .pins = 1};
    pthread_mutex_lock(&lock);
    void *other = pin_existing(bo); /* another thread was faster */
    if (!other)
        bo->view = view;
    pthread_mutex_unlock(&lock);
    if (!other)
        return cpu;
    munmap(cpu, bo->size);
    free(view);
    return other;
}

void bo_unmap(struct bo *bo)
{
    pthread_mutex_lock(&lock);
    struct bo_view *view = bo->view;
    if (--view->pins == 0) {
        link_newest(view);
        while (num_unpinned > MAX_UNPINNED)
            drop_oldest();
    }
    pthread_mutex_unlock(&lock);
}

bool bo_view_purge(struct bo *bo)
{
    pthread_mutex_lock(&lock);
    bool idle = !bo->view || bo->view->pins == 0;
    if (idle)
        bo->purge = BO_PURGED; /* who pins it from now on looks at this */
    pthread_mutex_unlock(&lock);
    return idle;
}

void bo_view_free(struct bo *bo)
{
    pthread_mutex_lock(&lock);
    struct bo_view *view = bo->view;
    if (view && view->pins == 0)
        unlink_view(view);
    bo->view = NULL;
    pthread_mutex_unlock(&lock);
    if (view) {
        munmap(view->cpu, view->size);
        free(view);
    }
}
