/* The table of devices, their configuration, and what fork does to them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "device.h"
#include "fault.h"

pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct device *devices[XE_MOCK_MAX_DEVICES];
static struct device *retired;
static struct xe_mock_config configs[XE_MOCK_MAX_DEVICES];
static bool denied_peers[XE_MOCK_MAX_DEVICES][XE_MOCK_MAX_DEVICES];

/* ---- fork: the child gets every lock free, and its copies of the tables; it shares the parent's files, not its
 * directory ---- */

typedef int lock_call(pthread_mutex_t *);

static void each_vm_lock(struct device *dev, lock_call *call)
{
    for (struct drm_file *file = dev->files; file; file = file->next_file) {
        uint32_t id = 0;
        struct vm *vm;
        for (; (vm = idr_next(&file->vms, &id)); id++)
            call(&vm->lock);
    }
}

static void each_file_lock(struct device *dev, lock_call *call)
{
    for (struct drm_file *file = dev->files; file; file = file->next_file)
        call(&file->lock);
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&registry_lock);
    for (int i = 0; i < XE_MOCK_MAX_DEVICES; i++) {
        if (devices[i])
            each_file_lock(devices[i], pthread_mutex_lock);
    }
    for (int i = 0; i < XE_MOCK_MAX_DEVICES; i++) {
        if (devices[i])
            each_vm_lock(devices[i], pthread_mutex_lock);
    }
    for (int i = 0; i < XE_MOCK_MAX_DEVICES; i++) {
        if (devices[i])
            pthread_mutex_lock(&devices[i]->lock);
    }
    bo_map_lock();
    store_lock();
    fence_lock_all();
}

static void fork_release(void)
{
    fence_unlock_all();
    store_unlock();
    bo_map_unlock();
    for (int i = 0; i < XE_MOCK_MAX_DEVICES; i++) {
        if (!devices[i])
            continue;
        pthread_mutex_unlock(&devices[i]->lock);
        each_vm_lock(devices[i], pthread_mutex_unlock);
        each_file_lock(devices[i], pthread_mutex_unlock);
    }
    pthread_mutex_unlock(&registry_lock);
}

static void fork_child(void)
{
    store_fork_child();
    streamer_fork_child();
    fork_release();
}

static void watch_fork(void)
{
    pthread_atfork(fork_prepare, fork_release, fork_child);
}

/* ---- configuration ---- */

static uint64_t size_from_environment(const char *name)
{
    const char *text = getenv(name);
    if (!text)
        return 0;
    char *end;
    uint64_t size = strtoull(text, &end, 0);
    static const char suffixes[] = "KMGT";
    const char *suffix = *end ? strchr(suffixes, *end & ~0x20) : NULL;
    return suffix ? size << (10 * (suffix - suffixes + 1)) : size;
}

static const char *profile_name(const struct xe_mock_config *config)
{
    const char *name = config->profile ? config->profile : getenv("ZE_IPC_MOCK_PROFILE");
    return name && *name ? name : "bmg";
}

static struct device *device_new(uint32_t index, int *error)
{
    const struct xe_mock_config *config = &configs[index];
    const struct profile *profile = profile_by_name(profile_name(config));
    if (!profile) {
        *error = -ENODEV;
        return NULL;
    }
    struct device *dev = calloc(1, sizeof(*dev));
    if (!dev) {
        *error = -ENOMEM;
        return NULL;
    }
    uint64_t vram = config->vram_size ? config->vram_size : size_from_environment("ZE_IPC_MOCK_VRAM") & ~UINT64_C(4095);
    uint64_t system = config->system_size ? config->system_size : profile->system_size;
    dev->index = index;
    dev->profile = profile;
    dev->region_size[REGION_SYSTEM] = system;
    dev->region_size[REGION_VRAM] = !profile->discrete ? 0 : vram ? vram : profile->vram_size;
    /* 384 bytes an operation in one 4 MiB allocation: derived from the driver's structures, not observed. */
    dev->max_bind_ops = config->max_bind_ops ? config->max_bind_ops : 10922;
    dev->max_deferred_binds = config->max_deferred_binds ? config->max_deferred_binds : profile->max_deferred_binds;
    dev->no_peer = config->no_peer;
    dev->next_offset = GIB(4);
    pthread_mutex_init(&dev->lock, NULL);
    device_read_fault_environment(dev);
    return dev;
}

struct device *device_get(uint32_t index, int *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *error = -ENODEV;
    if (index >= XE_MOCK_MAX_DEVICES)
        return NULL;
    pthread_once(&once, watch_fork);
    pthread_mutex_lock(&registry_lock);
    if (!devices[index])
        devices[index] = device_new(index, error);
    struct device *dev = devices[index];
    pthread_mutex_unlock(&registry_lock);
    if (dev)
        *error = 0;
    return dev;
}

struct device *device_peek(uint32_t index)
{
    if (index >= XE_MOCK_MAX_DEVICES)
        return NULL;
    pthread_mutex_lock(&registry_lock);
    struct device *dev = devices[index];
    pthread_mutex_unlock(&registry_lock);
    return dev;
}

bool device_peers(const struct device *dev, uint32_t other_index)
{
    if (other_index >= XE_MOCK_MAX_DEVICES)
        return true;
    pthread_mutex_lock(&registry_lock);
    const struct device *other = devices[other_index];
    bool denied = dev->no_peer || (other && other->no_peer) || (!other && configs[other_index].no_peer) ||
                  denied_peers[dev->index][other_index];
    pthread_mutex_unlock(&registry_lock);
    return !denied;
}

int xe_mock_set_peer(uint32_t a, uint32_t b, bool allowed)
{
    if (a >= XE_MOCK_MAX_DEVICES || b >= XE_MOCK_MAX_DEVICES || a == b)
        return -EINVAL;
    pthread_mutex_lock(&registry_lock);
    denied_peers[a][b] = denied_peers[b][a] = !allowed;
    pthread_mutex_unlock(&registry_lock);
    return 0;
}

static bool same_config(const struct device *dev, const struct xe_mock_config *config)
{
    const struct profile *profile = profile_by_name(profile_name(config));
    return profile == dev->profile &&
           (!config->vram_size || !profile->discrete || config->vram_size == dev->region_size[REGION_VRAM]) &&
           (!config->system_size || config->system_size == dev->region_size[REGION_SYSTEM]) &&
           (!config->max_bind_ops || config->max_bind_ops == dev->max_bind_ops) &&
           (!config->max_deferred_binds || config->max_deferred_binds == dev->max_deferred_binds) &&
           config->no_peer == dev->no_peer;
}

static bool is_idle(const struct device *dev)
{
    return !dev->files && !dev->num_objects && !atomic_load(&dev->num_vms);
}

int xe_mock_configure(uint32_t index, const struct xe_mock_config *config)
{
    if (index >= XE_MOCK_MAX_DEVICES || !profile_by_name(profile_name(config)))
        return -EINVAL;
    if (config->vram_size % PAGE_SIZE || config->system_size % PAGE_SIZE)
        return -EINVAL;
    int r = 0;
    pthread_mutex_lock(&registry_lock);
    if (!devices[index]) {
        configs[index] = *config;
        configs[index].profile = profile_by_name(profile_name(config))->name;
    } else if (is_idle(devices[index])) {
        /* Nobody has it open: it may become another. Threads may still be about to let go of the old one: it stays. */
        device_clear_faults(devices[index]);
        devices[index]->retired = retired;
        retired = devices[index];
        devices[index] = NULL;
        configs[index] = *config;
        configs[index].profile = profile_by_name(profile_name(config))->name;
    } else if (!same_config(devices[index], config)) {
        r = -EBUSY;
    }
    pthread_mutex_unlock(&registry_lock);
    return r;
}

/* ---- faults and numbers, by index ---- */

int xe_mock_fault(uint32_t index, uint32_t request, uint64_t nth, int error, uint32_t delay_us)
{
    int r;
    struct device *dev = device_get(index, &r);
    return dev ? device_add_fault(dev, request, nth, error, delay_us) : r;
}

int xe_mock_clear_faults(uint32_t index)
{
    struct device *dev = device_peek(index);
    if (dev)
        device_clear_faults(dev);
    return index < XE_MOCK_MAX_DEVICES ? 0 : -EINVAL;
}

uint64_t xe_mock_count(uint32_t index, uint32_t request)
{
    struct device *dev = device_peek(index);
    return dev ? atomic_load(&dev->counts[request & 0xff]) : 0;
}

void xe_mock_reset_counts(uint32_t index)
{
    struct device *dev = device_peek(index);
    for (int nr = 0; dev && nr < XE_MOCK_MAX_IOCTLS; nr++)
        atomic_store(&dev->counts[nr], 0);
}

int xe_mock_stats(uint32_t index, struct xe_mock_stats *stats)
{
    *stats = (struct xe_mock_stats){0};
    if (index >= XE_MOCK_MAX_DEVICES)
        return -EINVAL;
    struct device *dev = device_peek(index);
    if (!dev)
        return 0;
    pthread_mutex_lock(&registry_lock);
    for (struct drm_file *file = dev->files; file; file = file->next_file)
        stats->files++;
    pthread_mutex_unlock(&registry_lock);
    pthread_mutex_lock(&dev->lock);
    stats->objects = dev->num_objects;
    stats->handles = dev->num_handles;
    stats->system_used = dev->region_used[REGION_SYSTEM];
    stats->vram_used = dev->region_used[REGION_VRAM];
    pthread_mutex_unlock(&dev->lock);
    stats->vms = atomic_load(&dev->num_vms);
    stats->mappings = atomic_load(&dev->num_mappings);
    return 0;
}
