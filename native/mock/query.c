/* DEVICE_QUERY: what the device is. size 0 asks for the size; any other must be exactly that. */
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core.h"
#include "handlers.h"

/* 1: the caller shall copy; 0: answered with the size. */
static int size_protocol(struct drm_xe_device_query *query, uint32_t size)
{
    if (query->size == 0) {
        query->size = size;
        return 0;
    }
    return query->size == size ? 1 : -EINVAL;
}

static int answer(struct drm_xe_device_query *query, const void *data, uint32_t size)
{
    int r = size_protocol(query, size);
    return r == 1 ? copy_to_user(query->data, data, size) : r;
}

static bool may_raise_priority(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{0}};
    return syscall(SYS_capget, &header, sets) == 0 && sets[0].effective >> CAP_SYS_NICE & 1;
}

static int query_engines(struct drm_file *file, struct drm_xe_device_query *query)
{
    const struct profile *profile = file->dev->profile;
    struct {
        struct drm_xe_query_engines head;
        struct drm_xe_engine engines[16];
    } reply = {.head.num_engines = profile->num_engines};
    for (uint32_t i = 0; i < profile->num_engines; i++)
        reply.engines[i].instance = profile->engines[i];
    return answer(query, &reply, (uint32_t)(sizeof(reply.head) + profile->num_engines * sizeof(*reply.engines)));
}

static int query_mem_regions(struct drm_file *file, struct drm_xe_device_query *query)
{
    struct device *dev = file->dev;
    struct {
        struct drm_xe_query_mem_regions head;
        struct drm_xe_mem_region regions[2];
    } reply = {.head.num_mem_regions = dev->profile->discrete ? 2 : 1};
    pthread_mutex_lock(&dev->lock);
    reply.regions[0] = (struct drm_xe_mem_region){
        .mem_class = DRM_XE_MEM_REGION_CLASS_SYSMEM,
        .instance = REGION_SYSTEM,
        .min_page_size = PAGE_SIZE,
        .total_size = dev->region_size[REGION_SYSTEM],
        .used = dev->region_used[REGION_SYSTEM],
    };
    reply.regions[1] = (struct drm_xe_mem_region){
        .mem_class = DRM_XE_MEM_REGION_CLASS_VRAM,
        .instance = REGION_VRAM,
        .min_page_size = dev->profile->min_page_size,
        .total_size = dev->region_size[REGION_VRAM],
        .used = dev->region_used[REGION_VRAM],
        .cpu_visible_size = dev->region_size[REGION_VRAM],
        .cpu_visible_used = dev->region_used[REGION_VRAM],
    };
    pthread_mutex_unlock(&dev->lock);
    int r = answer(query, &reply, (uint32_t)(sizeof(reply.head) + reply.head.num_mem_regions * sizeof(*reply.regions)));
    return r == -EFAULT ? -ENOSPC : r; /* so does the driver */
}

static int query_config(struct drm_file *file, struct drm_xe_device_query *query)
{
    const struct profile *profile = file->dev->profile;
    struct {
        struct drm_xe_query_config head;
        uint64_t info[5];
    } reply = {.head.num_params = 5};
    reply.info[DRM_XE_QUERY_CONFIG_REV_AND_DEVICE_ID] = profile->device_id | (uint64_t)profile->revision << 16;
    reply.info[DRM_XE_QUERY_CONFIG_FLAGS] =
        (profile->discrete ? DRM_XE_QUERY_CONFIG_FLAG_HAS_VRAM : 0) | DRM_XE_QUERY_CONFIG_FLAG_HAS_LOW_LATENCY |
        (profile->has_usm ? DRM_XE_QUERY_CONFIG_FLAG_HAS_CPU_ADDR_MIRROR : 0) |
        (profile->graphics_ver >= 20 ? DRM_XE_QUERY_CONFIG_FLAG_HAS_NO_COMPRESSION_HINT : 0) |
        DRM_XE_QUERY_CONFIG_FLAG_HAS_DISABLE_STATE_CACHE_PERF_FIX | DRM_XE_QUERY_CONFIG_FLAG_HAS_PURGING_SUPPORT;
    reply.info[DRM_XE_QUERY_CONFIG_MIN_ALIGNMENT] = profile->discrete ? profile->min_page_size : PAGE_SIZE;
    reply.info[DRM_XE_QUERY_CONFIG_VA_BITS] = profile->va_bits;
    reply.info[DRM_XE_QUERY_CONFIG_MAX_EXEC_QUEUE_PRIORITY] = may_raise_priority() ? 2 : 1;
    return answer(query, &reply, sizeof(reply));
}

static int query_gt_list(struct drm_file *file, struct drm_xe_device_query *query)
{
    const struct profile *profile = file->dev->profile;
    struct {
        struct drm_xe_query_gt_list head;
        struct drm_xe_gt gts[4];
    } reply = {.head.num_gt = profile->num_gts};
    memcpy(reply.gts, profile->gts, profile->num_gts * sizeof(*reply.gts));
    return answer(query, &reply, (uint32_t)(sizeof(reply.head) + profile->num_gts * sizeof(*reply.gts)));
}

static int query_hwconfig(struct drm_file *file, struct drm_xe_device_query *query)
{
    return answer(query, file->dev->profile->hwconfig, file->dev->profile->hwconfig_size);
}

static int query_topology(struct drm_file *file, struct drm_xe_device_query *query)
{
    return answer(query, file->dev->profile->topology, file->dev->profile->topology_size);
}

static int query_engine_cycles(struct drm_file *file, struct drm_xe_device_query *query)
{
    const struct profile *profile = file->dev->profile;
    struct drm_xe_query_engine_cycles cycles;
    int r = size_protocol(query, sizeof(cycles));
    if (r != 1)
        return r;
    if (copy_from_user(&cycles, query->data, sizeof(cycles)))
        return -EFAULT;
    switch (cycles.clockid) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_REALTIME:
    case CLOCK_BOOTTIME:
    case CLOCK_TAI:
        break;
    default:
        return -EINVAL;
    }
    if (!profile_engine(profile, cycles.eci.engine_class, cycles.eci.engine_instance, cycles.eci.gt_id))
        return -EINVAL;
    struct timespec before, after;
    clock_gettime(cycles.clockid, &before);
    int64_t monotonic = now_ns();
    clock_gettime(cycles.clockid, &after);
    uint64_t clock = profile->gts[cycles.eci.gt_id].reference_clock;
    cycles.width = profile->graphics_ver >= 20 ? 64 : 36;
    cycles.engine_cycles = (uint64_t)((__uint128_t)monotonic * clock / 1000000000u);
    cycles.cpu_timestamp = (uint64_t)before.tv_sec * 1000000000u + (uint64_t)before.tv_nsec;
    cycles.cpu_delta = (uint64_t)after.tv_sec * 1000000000u + (uint64_t)after.tv_nsec - cycles.cpu_timestamp;
    return copy_to_user(query->data, &cycles, sizeof(cycles));
}

static int query_uc_fw_version(struct drm_file *file, struct drm_xe_device_query *query)
{
    const struct profile *profile = file->dev->profile;
    struct drm_xe_query_uc_fw_version version;
    int r = size_protocol(query, sizeof(version));
    if (r != 1)
        return r;
    if (copy_from_user(&version, query->data, sizeof(version)))
        return -EFAULT;
    if (version.pad || version.pad2 || version.reserved || version.uc_type > XE_QUERY_UC_TYPE_HUC)
        return -EINVAL;
    const uint32_t *numbers = version.uc_type == XE_QUERY_UC_TYPE_HUC ? profile->huc_version : profile->guc_version;
    version.branch_ver = 0;
    version.major_ver = numbers[0];
    version.minor_ver = numbers[1];
    version.patch_ver = numbers[2];
    return copy_to_user(query->data, &version, sizeof(version));
}

static int query_oa_units(struct drm_file *file, struct drm_xe_device_query *query)
{
    (void)file;
    const struct drm_xe_query_oa_units none = {0};
    return answer(query, &none, sizeof(none));
}

static int query_pxp_status(struct drm_file *file, struct drm_xe_device_query *query)
{
    (void)file;
    int r = size_protocol(query, sizeof(struct drm_xe_query_pxp_status));
    return r == 1 ? -ENODEV : r;
}

static int query_eu_stall(struct drm_file *file, struct drm_xe_device_query *query)
{
    (void)file;
    (void)query;
    return -ENODEV;
}

typedef int query_function(struct drm_file *file, struct drm_xe_device_query *query);

static query_function *const queries[] = {
    [DRM_XE_DEVICE_QUERY_ENGINES] = query_engines,
    [DRM_XE_DEVICE_QUERY_MEM_REGIONS] = query_mem_regions,
    [DRM_XE_DEVICE_QUERY_CONFIG] = query_config,
    [DRM_XE_DEVICE_QUERY_GT_LIST] = query_gt_list,
    [DRM_XE_DEVICE_QUERY_HWCONFIG] = query_hwconfig,
    [DRM_XE_DEVICE_QUERY_GT_TOPOLOGY] = query_topology,
    [DRM_XE_DEVICE_QUERY_ENGINE_CYCLES] = query_engine_cycles,
    [DRM_XE_DEVICE_QUERY_UC_FW_VERSION] = query_uc_fw_version,
    [DRM_XE_DEVICE_QUERY_OA_UNITS] = query_oa_units,
    [DRM_XE_DEVICE_QUERY_PXP_STATUS] = query_pxp_status,
    [DRM_XE_DEVICE_QUERY_EU_STALL] = query_eu_stall,
};

int device_query_ioctl(struct drm_file *file, void *data)
{
    struct drm_xe_device_query *query = data;
    if (query->extensions || query->reserved[0] || query->reserved[1])
        return -EINVAL;
    if (query->query >= ARRAY_SIZE(queries))
        return -EINVAL;
    return queries[query->query](file, query);
}

/* No observation unit: unknown types are refused first, as the driver does. */
int observation_ioctl(struct drm_file *file, void *data)
{
    (void)file;
    const struct drm_xe_observation_param *param = data;
    if (param->extensions || param->observation_type > DRM_XE_OBSERVATION_TYPE_EU_STALL)
        return -EINVAL;
    return -ENODEV;
}
