/* The two platforms the mock can be. Values are those that Intel's Level Zero driver and the kernel team's tests
 * accept. */
#include <string.h>

#include "core.h"

#define RESERVED {0}
#define NONE {.valid = true}
#define COHERENT {.valid = true, .coherent = true}
#define COMPRESSED {.valid = true, .compressed = true}

/* Xe2; the first 28 are Battlemage's. */
static const struct pat_entry xe2_pat[32] = {
    [0] = NONE,        [1] = COHERENT,    [2] = COHERENT,    [3] = NONE,        [4] = COHERENT,    [5] = COHERENT,
    [6] = NONE,        [7] = COHERENT,    [8] = NONE,        [9] = COMPRESSED,  [10] = COMPRESSED, [11] = COMPRESSED,
    [12] = COMPRESSED, [13] = NONE,       [14] = COMPRESSED, [15] = COMPRESSED, [16] = RESERVED,   [17] = RESERVED,
    [18] = RESERVED,   [19] = RESERVED,   [20] = NONE,       [21] = COMPRESSED, [22] = COHERENT,   [23] = COHERENT,
    [24] = NONE,       [25] = COMPRESSED, [26] = COHERENT,   [27] = COHERENT,   [28] = NONE,       [29] = COMPRESSED,
    [30] = COHERENT,   [31] = COHERENT,
};

static const struct drm_xe_engine_class_instance lnl_engines[] = {
    {DRM_XE_ENGINE_CLASS_RENDER, 0, 0, 0},        {DRM_XE_ENGINE_CLASS_COPY, 0, 0, 0},
    {DRM_XE_ENGINE_CLASS_COMPUTE, 0, 0, 0},       {DRM_XE_ENGINE_CLASS_VIDEO_DECODE, 0, 1, 0},
    {DRM_XE_ENGINE_CLASS_VIDEO_ENHANCE, 0, 1, 0},
};

/* Two of each media engine: with them queues of several placements and widths are possible. */
static const struct drm_xe_engine_class_instance bmg_engines[] = {
    {DRM_XE_ENGINE_CLASS_RENDER, 0, 0, 0},        {DRM_XE_ENGINE_CLASS_COPY, 0, 0, 0},
    {DRM_XE_ENGINE_CLASS_COMPUTE, 0, 0, 0},       {DRM_XE_ENGINE_CLASS_VIDEO_DECODE, 0, 1, 0},
    {DRM_XE_ENGINE_CLASS_VIDEO_DECODE, 1, 1, 0},  {DRM_XE_ENGINE_CLASS_VIDEO_ENHANCE, 0, 1, 0},
    {DRM_XE_ENGINE_CLASS_VIDEO_ENHANCE, 1, 1, 0},
};

static const struct drm_xe_gt bmg_gts[] = {
    {.type = DRM_XE_QUERY_GT_TYPE_MAIN,
     .gt_id = 0,
     .reference_clock = 19200000,
     .near_mem_regions = 2,
     .far_mem_regions = 1,
     .ip_ver_major = 20,
     .ip_ver_minor = 1},
    {.type = DRM_XE_QUERY_GT_TYPE_MEDIA,
     .gt_id = 1,
     .reference_clock = 19200000,
     .near_mem_regions = 2,
     .far_mem_regions = 1,
     .ip_ver_major = 13,
     .ip_ver_minor = 1},
};

static const struct drm_xe_gt lnl_gts[] = {
    {.type = DRM_XE_QUERY_GT_TYPE_MAIN,
     .gt_id = 0,
     .reference_clock = 19200000,
     .near_mem_regions = 1,
     .ip_ver_major = 20,
     .ip_ver_minor = 4,
     .ip_ver_rev = 4},
    {.type = DRM_XE_QUERY_GT_TYPE_MEDIA,
     .gt_id = 1,
     .reference_clock = 19200000,
     .near_mem_regions = 1,
     .ip_ver_major = 20,
     .ip_ver_rev = 4},
};

/* Firmware's own table: key, number of values, value. Without 1, 62, one of {2, 70} and one of {3, 71} Level Zero
 * aborts. */
static const uint32_t hwconfig[] = {
    1, 1,  8, 2, 1,  32, 3,   1,  8, 10,  1,  12, 11, 1,  4, 15, 1,  8, 23,  1,  1, 24, 1,
    1, 62, 1, 8, 64, 1,  512, 65, 1, 128, 70, 1,  32, 71, 1, 8,  73, 1, 128, 83, 1, 1,
};

struct topology_record {
    uint16_t gt_id, type;
    uint32_t num_bytes;
    uint32_t mask;
};

#define TOPOLOGY(gt, dss, l3, eu)                                                                                      \
    {gt, DRM_XE_TOPO_DSS_GEOMETRY, 4, dss}, {gt, DRM_XE_TOPO_DSS_COMPUTE, 4, dss}, {gt, DRM_XE_TOPO_L3_BANK, 4, l3},   \
    {                                                                                                                  \
        gt, DRM_XE_TOPO_SIMD16_EU_PER_DSS, 4, eu                                                                       \
    }

static const struct topology_record bmg_topology[] = {TOPOLOGY(0, 0x0fffff, 0x0fffff, 0xff), TOPOLOGY(1, 0, 0, 0)};
static const struct topology_record lnl_topology[] = {TOPOLOGY(0, 0xff, 0x0f, 0xff), TOPOLOGY(1, 0, 0, 0)};

static const struct profile profiles[] = {
    {
        .name = "bmg",
        .description = "Mock Battlemage (Arc B580)",
        .device_id = 0xe20b,
        .discrete = true,
        .has_usm = true,
        .scratch_with_fault = true,
        .graphics_ver = 20,
        .va_bits = 48,
        .min_page_size = 4096,
        .num_pat = 28,
        .pat = xe2_pat,
        .vram_size = GIB(8),
        .system_size = GIB(16),
        .max_deferred_binds = 1024,
        .engines = bmg_engines,
        .num_engines = ARRAY_SIZE(bmg_engines),
        .gts = bmg_gts,
        .num_gts = ARRAY_SIZE(bmg_gts),
        .hwconfig = hwconfig,
        .hwconfig_size = sizeof(hwconfig),
        .topology = bmg_topology,
        .topology_size = sizeof(bmg_topology),
        .guc_version = {1, 17, 3},
        .huc_version = {9, 4, 13},
    },
    {
        .name = "lnl",
        .description = "Mock Lunar Lake (Arc 140V)",
        .device_id = 0x64a0,
        .revision = 4,
        .discrete = false,
        .has_usm = true,
        .scratch_with_fault = true,
        .graphics_ver = 20,
        .va_bits = 48,
        .min_page_size = 4096,
        .num_pat = 32,
        .pat = xe2_pat,
        .system_size = GIB(16),
        .max_deferred_binds = 512,
        .engines = lnl_engines,
        .num_engines = ARRAY_SIZE(lnl_engines),
        .gts = lnl_gts,
        .num_gts = ARRAY_SIZE(lnl_gts),
        .hwconfig = hwconfig,
        .hwconfig_size = sizeof(hwconfig),
        .topology = lnl_topology,
        .topology_size = sizeof(lnl_topology),
        .guc_version = {1, 17, 3},
        .huc_version = {9, 4, 13},
    },
};

const struct profile *profile_by_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(profiles); i++) {
        if (!strcmp(profiles[i].name, name))
            return &profiles[i];
    }
    return NULL;
}

const struct drm_xe_engine_class_instance *profile_engine(const struct profile *profile, uint16_t engine_class,
                                                          uint16_t instance, uint16_t gt)
{
    for (uint32_t i = 0; i < profile->num_engines; i++) {
        const struct drm_xe_engine_class_instance *engine = &profile->engines[i];
        if (engine->engine_class == engine_class && engine->engine_instance == instance && engine->gt_id == gt)
            return engine;
    }
    return NULL;
}
