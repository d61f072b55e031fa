/* Sync entries of VM_BIND and EXEC. */
#include <errno.h>
#include <stdlib.h>

#include "core.h"

static int parse_user_fence(const struct drm_xe_sync *sync, uint32_t flags, struct sync_entry *entry)
{
    if (flags & SYNC_NO_UFENCE)
        return -EOPNOTSUPP;
    if (!entry->signal)
        return -EOPNOTSUPP;
    if (sync->addr & 7)
        return -EINVAL;
    uint64_t probe;
    if (!(flags & SYNC_EXEC) && copy_from_user(&probe, sync->addr, sizeof(probe)))
        return -EFAULT;
    entry->addr = sync->addr;
    entry->point = sync->timeline_value;
    return 0;
}

static int parse_syncobj(struct drm_file *file, const struct drm_xe_sync *sync, uint32_t flags,
                         struct sync_entry *entry)
{
    if (entry->signal && flags & SYNC_LR)
        return -EOPNOTSUPP;
    if (sync->addr >> 32)
        return -EINVAL;
    if (sync->type == DRM_XE_SYNC_TYPE_TIMELINE_SYNCOBJ) {
        if (!sync->timeline_value)
            return -EINVAL;
        entry->point = sync->timeline_value;
    }
    entry->syncobj = syncobj_lookup(file, sync->handle);
    if (!entry->syncobj)
        return -ENOENT;
    if (entry->signal)
        return 0;
    entry->fence = syncobj_fence(entry->syncobj, entry->point);
    return entry->fence ? 0 : -EINVAL;
}

static int parse_one(struct drm_file *file, uint64_t user, uint32_t flags, struct sync_entry *entry)
{
    struct drm_xe_sync sync;
    if (copy_from_user(&sync, user, sizeof(sync)))
        return -EFAULT;
    if (sync.flags & ~(uint32_t)DRM_XE_SYNC_FLAG_SIGNAL)
        return -EINVAL;
    if (sync.reserved[0] || sync.reserved[1])
        return -EINVAL;
    entry->type = sync.type;
    entry->signal = sync.flags & DRM_XE_SYNC_FLAG_SIGNAL;
    switch (sync.type) {
    case DRM_XE_SYNC_TYPE_SYNCOBJ:
    case DRM_XE_SYNC_TYPE_TIMELINE_SYNCOBJ:
        return parse_syncobj(file, &sync, flags, entry);
    case DRM_XE_SYNC_TYPE_USER_FENCE:
        return parse_user_fence(&sync, flags, entry);
    default:
        return -EINVAL;
    }
}

int sync_parse(struct drm_file *file, uint64_t user, uint32_t num, uint32_t flags, struct sync_list *list)
{
    *list = (struct sync_list){0};
    if (!num)
        return 0;
    list->entries = calloc(num, sizeof(*list->entries));
    if (!list->entries)
        return -ENOMEM;
    int r = 0;
    unsigned user_fences = 0;
    for (; list->count < num && !r; list->count++) {
        struct sync_entry *entry = &list->entries[list->count];
        r = parse_one(file, user + list->count * sizeof(struct drm_xe_sync), flags, entry);
        if (entry->type == DRM_XE_SYNC_TYPE_USER_FENCE) {
            list->user_fence = entry;
            user_fences++;
        } else if (!entry->signal) {
            list->num_in++;
        }
    }
    if (!r && user_fences > 1)
        r = -EINVAL;
    if (r)
        sync_free(list);
    return r;
}

int sync_install(struct sync_list *list, struct fence *fence)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct sync_entry *entry = &list->entries[i];
        if (entry->syncobj && entry->signal) {
            int r = syncobj_install(entry->syncobj, entry->point, fence);
            if (r)
                return r;
        }
    }
    return 0;
}

void sync_free(struct sync_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        fence_put(list->entries[i].fence);
        if (list->entries[i].syncobj)
            syncobj_put(list->entries[i].syncobj);
    }
    free(list->entries);
    *list = (struct sync_list){0};
}
