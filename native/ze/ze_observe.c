/* Callbacks of the loader's tracing layer, and how they get there. */
#include "ze_observe.h"
#include "ze_seen.h"
#include "ze_space.h"

#include <dlfcn.h>
#include <errno.h>

_Thread_local int ze_ours;

/* params is a struct of pointers to the call's arguments, in their order. */
typedef void (*callback)(void **params, ze_result_t result, void *user, void **instance);

#define CALLBACK(name) static void name(void **params, ze_result_t result, void *user, void **instance)
#define UNUSED (void)params, (void)result, (void)user, (void)instance
#define ARGUMENT(type, index) (*(type *)params[index])
#define ADDRESS(index) ((uint64_t)(uintptr_t)ARGUMENT(void *, index))

static bool is_done(ze_result_t result)
{
    return !ze_ours && result == ZE_RESULT_SUCCESS;
}

/* A call that made [*out, size) in a context. */
static void made(enum seen_kind kind, void **params, int out, int size)
{
    struct row row = {.start = (uint64_t)(uintptr_t)*ARGUMENT(void **, out), .context = ARGUMENT(void *, 0)};

    row.end = row.start + ARGUMENT(size_t, size);
    seen_add(kind, &row);
}

/* context, ptr, size, handle, offset, access */
CALLBACK(map_after)
{
    UNUSED;
    if (is_done(result))
        seen_map((struct row){.start = ADDRESS(1),
                              .end = ADDRESS(1) + ARGUMENT(size_t, 2),
                              .offset = ARGUMENT(size_t, 4),
                              .access = ARGUMENT(uint32_t, 5) == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY,
                              .context = ARGUMENT(void *, 0)},
                 ADDRESS(3));
}

/* context, ptr, size */
CALLBACK(unmap_before)
{
    UNUSED;
    if (!ze_ours)
        *instance = seen_remove(SEEN_MAPPINGS, ADDRESS(1), ADDRESS(1) + ARGUMENT(size_t, 2));
}

/* context, ptr, size, access */
CALLBACK(access_after)
{
    UNUSED;
    if (is_done(result))
        seen_set_access(ADDRESS(1), ADDRESS(1) + ARGUMENT(size_t, 2),
                        ARGUMENT(uint32_t, 3) == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY);
}

/* context, wish, size, out */
CALLBACK(reserve_after)
{
    UNUSED;
    if (is_done(result))
        made(SEEN_RESERVATIONS, params, 3, 2);
}

/* context, ptr, size */
CALLBACK(unreserve_before)
{
    UNUSED;
    if (!ze_ours)
        *instance = seen_remove(SEEN_RESERVATIONS, ADDRESS(1), ADDRESS(1) + ARGUMENT(size_t, 2));
}

/* context, device, desc, out */
CALLBACK(create_after)
{
    const ze_physical_mem_desc_t *desc = ARGUMENT(const ze_physical_mem_desc_t *, 2);
    uint64_t handle;

    UNUSED;
    if (!is_done(result))
        return;
    handle = (uint64_t)(uintptr_t)*ARGUMENT(void **, 3);
    seen_create((struct row){.start = handle,
                             .end = handle + 1,
                             .offset = desc->size,
                             .access = desc->flags & ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST ? SEEN_HOST : 0,
                             .context = ARGUMENT(void *, 0),
                             .device = ARGUMENT(void *, 1)});
}

/* context, handle */
CALLBACK(destroy_before)
{
    UNUSED;
    if (ze_ours)
        return;
    *instance = seen_remove(SEEN_OBJECTS, ADDRESS(1), ADDRESS(1) + 1);
    ze_spaces_keep(ARGUMENT(void *, 1));
}

/* context, handle, properties; what is chained there may ask for the driver's descriptor */
CALLBACK(properties_before)
{
    UNUSED;
    if (ze_ours || !ARGUMENT(const ze_physical_mem_properties_t *, 2)->pNext)
        return;
    seen_use_fd(ADDRESS(1));
    ze_spaces_spare_fd(ARGUMENT(void *, 1));
}

/* context, desc, size, alignment, device, out */
CALLBACK(allocate_device_after)
{
    UNUSED;
    if (is_done(result))
        made(SEEN_ALLOCATIONS, params, 5, 2);
}

/* context, desc, size, alignment, out */
CALLBACK(allocate_host_after)
{
    UNUSED;
    if (is_done(result))
        made(SEEN_ALLOCATIONS, params, 4, 2);
}

/* context, device desc, host desc, size, alignment, device, out */
CALLBACK(allocate_shared_after)
{
    UNUSED;
    if (is_done(result))
        made(SEEN_ALLOCATIONS, params, 6, 3);
}

/* context, ptr */
CALLBACK(free_before)
{
    UNUSED;
    if (!ze_ours)
        *instance = seen_remove_allocation(ADDRESS(1));
}

/* context, desc, ptr */
CALLBACK(free_ext_before)
{
    UNUSED;
    if (!ze_ours)
        *instance = seen_remove_allocation(ADDRESS(2));
}

/* context; what is left in it goes with it */
CALLBACK(context_before)
{
    UNUSED;
    if (!ze_ours)
        seen_drop_context(ARGUMENT(void *, 0));
}

/* After a call that removes. */
CALLBACK(settle_after)
{
    UNUSED;
    if (*instance)
        seen_settle(*instance, result != ZE_RESULT_SUCCESS);
    *instance = NULL;
}

static const struct registration {
    const char *name;
    callback before;
    callback after;
    /* Came later than the rest. */
    bool optional;
} registrations[] = {
    {"zelTracerVirtualMemMapRegisterCallback", NULL, map_after},
    {"zelTracerVirtualMemUnmapRegisterCallback", unmap_before, settle_after},
    {"zelTracerVirtualMemSetAccessAttributeRegisterCallback", NULL, access_after},
    {"zelTracerVirtualMemReserveRegisterCallback", NULL, reserve_after},
    {"zelTracerVirtualMemFreeRegisterCallback", unreserve_before, settle_after},
    {"zelTracerPhysicalMemCreateRegisterCallback", NULL, create_after},
    {"zelTracerPhysicalMemDestroyRegisterCallback", destroy_before, settle_after},
    {"zelTracerMemAllocDeviceRegisterCallback", NULL, allocate_device_after},
    {"zelTracerMemAllocHostRegisterCallback", NULL, allocate_host_after},
    {"zelTracerMemAllocSharedRegisterCallback", NULL, allocate_shared_after},
    {"zelTracerMemFreeRegisterCallback", free_before, settle_after},
    {"zelTracerMemFreeExtRegisterCallback", free_ext_before, settle_after},
    {"zelTracerContextDestroyRegisterCallback", context_before, NULL},
    {"zelTracerPhysicalMemGetPropertiesRegisterCallback", properties_before, NULL, .optional = true},
};

/* The one tracer; start and stop are called one at a time. */
static struct {
    void *library;
    zel_tracer_handle_t tracer;
    bool enabled_layer;
} state;

static void *symbol(const char *name, struct ze_observe_report *report)
{
    report->call = name;
    return dlsym(state.library, name);
}

static int check(ze_result_t result, struct ze_observe_report *report)
{
    report->result = result;
    return result == ZE_RESULT_SUCCESS ? 0 : -EIO;
}

static int register_one(const struct registration *row, struct ze_observe_report *report)
{
    ze_result_t (*add)(zel_tracer_handle_t, uint32_t, callback) =
        (ze_result_t (*)(zel_tracer_handle_t, uint32_t, callback))symbol(row->name, report);
    int rc = add ? 0 : -ENOSYS;

    if (!add && row->optional)
        return 0;
    if (rc == 0 && row->before)
        rc = check(add(state.tracer, ZEL_REGISTER_PROLOGUE, row->before), report);
    if (rc == 0 && row->after)
        rc = check(add(state.tracer, ZEL_REGISTER_EPILOGUE, row->after), report);
    return rc;
}

static int set_enabled(uint8_t enabled, struct ze_observe_report *report)
{
    ze_result_t (*set)(zel_tracer_handle_t, uint8_t) =
        (ze_result_t (*)(zel_tracer_handle_t, uint8_t))symbol("zelTracerSetEnabled", report);

    return set ? check(set(state.tracer, enabled), report) : -ENOSYS;
}

/* A loader that cannot switch the layer on while it runs has it from its start, or not at all. */
static int enable_layer(struct ze_observe_report *report)
{
    ze_result_t (*enable)(void) = (ze_result_t (*)(void))symbol("zelEnableTracingLayer", report);
    int rc = enable ? check(enable(), report) : 0;

    state.enabled_layer = enable && rc == 0;
    return rc;
}

static int begin(struct ze_observe_report *report)
{
    ze_result_t (*create)(const zel_tracer_desc_t *, zel_tracer_handle_t *) =
        (ze_result_t (*)(const zel_tracer_desc_t *, zel_tracer_handle_t *))symbol("zelTracerCreate", report);
    const zel_tracer_desc_t desc = {.stype = ZEL_STRUCTURE_TYPE_TRACER_DESC, .pUserData = &state};
    int rc = create ? check(create(&desc, &state.tracer), report) : -ENOSYS;

    for (size_t i = 0; rc == 0 && i < sizeof(registrations) / sizeof(*registrations); i++)
        rc = register_one(&registrations[i], report);
    if (rc == 0)
        rc = set_enabled(1, report);
    return rc == 0 ? enable_layer(report) : rc;
}

static int end(void)
{
    struct ze_observe_report report;
    ze_result_t (*destroy)(zel_tracer_handle_t) =
        (ze_result_t (*)(zel_tracer_handle_t))symbol("zelTracerDestroy", &report);
    ze_result_t (*disable)(void) = (ze_result_t (*)(void))symbol("zelDisableTracingLayer", &report);

    if (state.tracer) {
        set_enabled(0, &report);
        if (destroy && destroy(state.tracer) != ZE_RESULT_SUCCESS)
            return -EBUSY;
        state.tracer = NULL;
    }
    /* The loader counts who wants it. */
    if (state.enabled_layer && disable)
        disable();
    state.enabled_layer = false;
    return 0;
}

int ze_observe_start(const char *library, struct ze_observe_report *report)
{
    struct ze_observe_report first;
    int rc;

    state.library = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    report->call = "dlopen";
    if (!state.library)
        return -ENOSYS;
    rc = begin(report);
    if (rc < 0) {
        first = *report;
        end();
        *report = first;
    }
    return rc;
}

int ze_observe_stop(void)
{
    int rc = end();

    if (rc == 0)
        seen_clear();
    return rc;
}
