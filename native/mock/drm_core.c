/* The ioctls of the DRM core that are about the driver and the client, not about objects. */
#include <errno.h>
#include <string.h>

#include "core.h"
#include "handlers.h"

static int copy_field(uint64_t user, size_t *length, const char *value)
{
    size_t whole = strlen(value);
    size_t part = *length < whole ? *length : whole;
    *length = whole;
    return part && user ? copy_to_user(user, value, part) : 0;
}

int drm_version_ioctl(struct drm_file *file, void *data)
{
    (void)file;
    struct drm_version *version = data;
    version->version_major = 1;
    version->version_minor = 1;
    version->version_patchlevel = 0;
    int r = copy_field((uint64_t)version->name, &version->name_len, "xe");
    if (!r)
        r = copy_field((uint64_t)version->date, &version->date_len, "0");
    if (!r)
        r = copy_field((uint64_t)version->desc, &version->desc_len, "Intel Xe2 Graphics");
    return r;
}

/* The mock is a device without display: what only KMS devices have is EOPNOTSUPP. */
int drm_get_cap_ioctl(struct drm_file *file, void *data)
{
    (void)file;
    struct drm_get_cap *cap = data;
    cap->value = 0;
    switch (cap->capability) {
    case DRM_CAP_PRIME:
        cap->value = DRM_PRIME_CAP_IMPORT | DRM_PRIME_CAP_EXPORT;
        return 0;
    case DRM_CAP_TIMESTAMP_MONOTONIC:
    case DRM_CAP_SYNCOBJ:
    case DRM_CAP_SYNCOBJ_TIMELINE:
        cap->value = 1;
        return 0;
    default:
        return -EOPNOTSUPP;
    }
}

int drm_set_client_cap_ioctl(struct drm_file *file, void *data)
{
    (void)file;
    (void)data;
    return -EOPNOTSUPP;
}

int drm_no_kms_ioctl(struct drm_file *file, void *data)
{
    (void)file;
    (void)data;
    return -EOPNOTSUPP;
}

/* A name nobody set: the empty string. Guess: clients only look at the error. */
int drm_get_unique_ioctl(struct drm_file *file, void *data)
{
    (void)file;
    uint64_t *length = data;
    *length = 0;
    return 0;
}

int drm_get_magic_ioctl(struct drm_file *file, void *data)
{
    *(uint32_t *)data = (uint32_t)file->client_id;
    return 0;
}

int drm_auth_magic_ioctl(struct drm_file *file, void *data)
{
    (void)file;
    return *(uint32_t *)data ? 0 : -EINVAL;
}

int drm_master_ioctl(struct drm_file *file, void *data)
{
    (void)file;
    (void)data;
    return 0;
}

/* Interface 1.4, DRM 1.1. */
int drm_set_version_ioctl(struct drm_file *file, void *data)
{
    (void)file;
    int32_t *versions = data;
    static const int32_t ours[4] = {1, 4, 1, 1};
    bool bad = (versions[0] != -1 && (versions[0] != 1 || versions[1] < 0 || versions[1] > 4)) ||
               (versions[2] != -1 && (versions[2] != 1 || versions[3] < 0 || versions[3] > 1));
    memcpy(versions, ours, sizeof(ours));
    return bad ? -EINVAL : 0;
}

struct drm_client {
    int idx;
    int auth;
    unsigned long pid, uid, magic, iocs;
};

/* Only ever answers for client 0, and says that it is authenticated: libva asks. */
int drm_get_client_ioctl(struct drm_file *file, void *data)
{
    (void)file;
    struct drm_client *client = data;
    if (client->idx != 0)
        return -EINVAL;
    *client = (struct drm_client){.auth = 1};
    return 0;
}

int drm_set_client_name_ioctl(struct drm_file *file, void *data)
{
    const struct drm_set_client_name *args = data;
    if (args->name_len > DRM_CLIENT_NAME_MAX_LEN)
        return -EINVAL;
    char name[DRM_CLIENT_NAME_MAX_LEN + 1] = "";
    if (copy_from_user(name, args->name, args->name_len))
        return -EFAULT;
    for (uint64_t i = 0; i < args->name_len; i++) {
        if (name[i] <= ' ' || name[i] > '~') /* that a space is refused, too, is a guess */
            return -EINVAL;
    }
    pthread_mutex_lock(&file->lock);
    memcpy(file->client_name, name, sizeof(name));
    pthread_mutex_unlock(&file->lock);
    return 0;
}
