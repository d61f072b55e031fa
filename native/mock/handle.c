/* GEM handles: a file's numbers for objects. dev->lock is held by the caller. */
#include <errno.h>
#include <stdlib.h>

#include "gem.h"

uint32_t handle_new_locked(struct drm_file *file, struct bo *bo, int *error)
{
    struct handle *handle = malloc(sizeof(*handle));
    if (!handle) {
        *error = -ENOMEM;
        return 0;
    }
    uint32_t id = idr_alloc(&file->handles, handle, error);
    if (!id) {
        free(handle);
        return 0;
    }
    *handle = (struct handle){.bo = bo_get(bo), .file = file, .next = bo->handles, .id = id};
    bo->handles = handle;
    file->dev->num_handles++;
    return id;
}

struct handle *handle_prime_locked(const struct drm_file *file, const struct bo *bo)
{
    struct handle *handle = bo->handles;
    while (handle && !(handle->file == file && handle->prime))
        handle = handle->next;
    return handle;
}

bool handle_exists_locked(const struct drm_file *file, const struct bo *bo)
{
    const struct handle *handle = bo->handles;
    while (handle && handle->file != file)
        handle = handle->next;
    return handle;
}

static void handle_free_locked(struct handle *handle)
{
    struct bo *bo = handle->bo;
    struct device *dev = bo->dev;
    struct handle **link = &bo->handles;
    while (*link != handle)
        link = &(*link)->next;
    *link = handle->next;
    free(handle);
    dev->num_handles--;
    if (!bo->handles && bo->flink) {
        idr_remove(&dev->flink_names, bo->flink);
        bo->flink = 0;
    }
    bo_put_locked(bo);
}

int handle_close_locked(struct drm_file *file, uint32_t id)
{
    struct handle *handle = id ? idr_remove(&file->handles, id) : NULL;
    if (!handle)
        return -EINVAL;
    handle_free_locked(handle);
    return 0;
}

void gem_close_all(struct drm_file *file)
{
    pthread_mutex_lock(&file->dev->lock);
    uint32_t id = 0;
    for (struct handle *handle; (handle = idr_next(&file->handles, &id)); id++)
        handle_free_locked(handle);
    idr_destroy(&file->handles);
    pthread_mutex_unlock(&file->dev->lock);
}
