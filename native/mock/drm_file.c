/* Open files of a device. */
#include <stdlib.h>

#include "core.h"
#include "device.h"
#include "gem.h"

struct drm_file *drm_file_open(struct device *dev, bool render)
{
    static atomic_ullong last_client;
    struct drm_file *file = calloc(1, sizeof(*file));
    if (!file)
        return NULL;
    atomic_init(&file->refs, 1);
    file->dev = dev;
    file->render = render;
    file->client_id = atomic_fetch_add(&last_client, 1) + 1;
    pthread_mutex_init(&file->lock, NULL);
    pthread_mutex_lock(&registry_lock);
    file->next_file = dev->files;
    if (dev->files)
        dev->files->prev_file = file;
    dev->files = file;
    pthread_mutex_unlock(&registry_lock);
    return file;
}

struct drm_file *drm_file_get(struct drm_file *file)
{
    atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
    return file;
}

static void close_vms(struct drm_file *file)
{
    for (;;) {
        pthread_mutex_lock(&file->lock);
        uint32_t id = 0;
        struct vm *vm = idr_next(&file->vms, &id);
        if (vm)
            idr_remove(&file->vms, id);
        pthread_mutex_unlock(&file->lock);
        if (!vm)
            return;
        vm_close(vm);
        vm_put(vm);
    }
}

void drm_file_put(struct drm_file *file)
{
    if (atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) != 1)
        return;
    queue_file_close(file);
    close_vms(file);
    syncobj_file_close(file);
    gem_close_all(file);

    pthread_mutex_lock(&registry_lock);
    if (file->next_file)
        file->next_file->prev_file = file->prev_file;
    if (file->prev_file)
        file->prev_file->next_file = file->next_file;
    else
        file->dev->files = file->next_file;
    pthread_mutex_unlock(&registry_lock);
    pthread_mutex_destroy(&file->lock);
    free(file);
}
