/* Every allocation of a VM_BIND array fails once: the ioctl fails and the VM is as it was. Linked with --wrap of
   malloc, calloc and realloc. */
#include "check.h"
#include "core.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static long countdown = -1; /* the allocation that fails when this gets to 0; negative: none */

static bool shall_fail(void)
{
    return countdown >= 0 && countdown-- == 0;
}

void *__wrap_malloc(size_t size)
{
    return shall_fail() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return shall_fail() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return shall_fail() ? NULL : __real_realloc(old, size);
}

static uint32_t list(int fd, uint32_t vm, struct drm_xe_mem_range_attr *attrs)
{
    struct drm_xe_vm_query_mem_range_attr args = {.vm_id = vm,
                                                  .range = 1ull << 48,
                                                  .num_mem_ranges = 32,
                                                  .sizeof_mem_range_attr = 64,
                                                  .vector_of_mem_attr = (uintptr_t)attrs};
    memset(attrs, 0, 32 * sizeof(*attrs));
    CHECK_EQ(CALL(fd, XE_VM_QUERY_MEM_RANGE_ATTRS, &args), 0);
    return args.num_mem_ranges;
}

static void arrays(int fd)
{
    uint32_t vm = make_vm(fd, 0), bo = make_bo(fd, 16 * PAGE, SYSTEM, WB, 0);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_EQ(map_bo(fd, vm, bo, i * PAGE, (16 + 4 * i) * PAGE, 3 * PAGE), 0);
    const struct drm_xe_vm_bind_op ops[] = {
        {.obj = bo, .addr = 17 * PAGE, .range = PAGE, .pat_index = 1},         /* a cut in the middle */
        {.op = DRM_XE_VM_BIND_OP_UNMAP, .addr = 18 * PAGE, .range = 3 * PAGE}, /* over two and a hole */
        {.addr = 0, .range = PAGE, .flags = DRM_XE_VM_BIND_FLAG_NULL},         /* in a hole */
        {.op = DRM_XE_VM_BIND_OP_UNMAP_ALL, .obj = bo, .pat_index = PAT_WB},
        {.obj = bo, .addr = 0, .range = 16 * PAGE, .pat_index = PAT_WB},
        {.op = DRM_XE_VM_BIND_OP_UNMAP, .addr = 4 * PAGE, .range = 4 * PAGE},
    };
    struct drm_xe_mem_range_attr before[32], after[32];
    uint32_t num_before = list(fd, vm, before);
    uint64_t fence = 0;
    struct drm_xe_sync sync = {.type = 2, .flags = 1, .addr = (uintptr_t)&fence, .timeline_value = 7};
    struct drm_xe_vm_bind args = {
        .vm_id = vm, .num_binds = 6, .vector_of_binds = (uintptr_t)ops, .num_syncs = 1, .syncs = (uintptr_t)&sync};
    unsigned failures = 0;
    for (long k = 0;; k++) {
        countdown = k;
        int r = CALL(fd, XE_VM_BIND, &args);
        bool injected = countdown < 0;
        countdown = -1;
        uint32_t num_after = list(fd, vm, after);
        if (!injected) {
            CHECK_EQ(r, 0);
            CHECK_EQ(fence, 7);
            CHECK_EQ(num_after, 2);
            break;
        }
        CHECK_EQ(r, k == 0 ? -ENOBUFS : -ENOMEM);
        failures++;
        CHECK_EQ(fence, 0);
        CHECK_EQ(num_after, num_before);
        CHECK(!memcmp(before, after, sizeof(before)));
        CHECK_EQ(stats_of(0).mappings, num_before);
    }
    CHECK(failures >= 12);

    destroy_vm(fd, vm);
    CHECK_EQ(close_bo(fd, bo), 0);
}

/* GEM_CREATE, PRIME and the file's close leave nothing behind, whichever allocation failed. */
static void objects(void)
{
    unsigned failures = 0;
    for (long k = 0;; k++) {
        countdown = k;
        int fd = xe_mock_open(0, false, O_CLOEXEC), dma_buf = -1;
        struct drm_xe_gem_create create = {.size = PAGE, .placement = VRAM, .cpu_caching = WC};
        struct drm_xe_vm_create vm = {0};
        struct drm_xe_gem_mmap_offset offset = {0};
        int r = fd < 0 ? fd : CALL(fd, XE_VM_CREATE, &vm);
        if (!r)
            r = CALL(fd, XE_GEM_CREATE, &create);
        offset.handle = create.handle;
        if (!r)
            r = CALL(fd, XE_GEM_MMAP_OFFSET, &offset);
        if (!r)
            r = (dma_buf = export_bo(fd, create.handle, DRM_RDWR)) < 0 ? dma_buf : 0;
        if (!r) {
            CHECK_EQ(close_bo(fd, create.handle), 0);
            int handle = import_bo(fd, dma_buf);
            r = handle < 0 ? handle : 0;
        }
        bool injected = countdown < 0;
        countdown = -1;
        if (fd >= 0)
            close_node(fd);
        if (dma_buf >= 0)
            close(dma_buf);
        check_nothing_left(0);
        CHECK(r == 0 || r == -ENOMEM);
        if (!injected)
            break;
        failures += r != 0;
    }
    CHECK(failures >= 8);
}

static void limits(void)
{
    const struct xe_mock_config config = {.profile = "lnl", .max_bind_ops = 100};
    CHECK_EQ(xe_mock_configure(2, &config), 0);
    int fd = open_node(2);
    uint32_t vm = make_vm(fd, 0), bo = make_bo(fd, PAGE, SYSTEM, WB, 0);
    struct drm_xe_vm_bind_op ops[101];
    for (uint32_t i = 0; i < 101; i++)
        ops[i] = (struct drm_xe_vm_bind_op){.obj = bo, .addr = i * PAGE, .range = PAGE, .pat_index = PAT_WB};
    CHECK_EQ(bind_array(fd, vm, ops, 101), -ENOBUFS);
    CHECK_EQ(stats_of(2).mappings, 0);
    CHECK_EQ(bind_array(fd, vm, ops, 51), 0);
    CHECK_EQ(bind_array(fd, vm, ops + 51, 50), 0);
    CHECK_EQ(stats_of(2).mappings, 101);
    CHECK_EQ(unmap(fd, vm, 0, 1ull << 30), -ENOMEM); /* a single one has no halves */
    CHECK_EQ(unmap(fd, vm, 0, 60 * PAGE), 0);
    CHECK_EQ(unmap(fd, vm, 0, 1ull << 30), 0);
    const struct xe_mock_config other = {.profile = "bmg"};
    CHECK_EQ(xe_mock_configure(2, &other), -EBUSY);
    close_node(fd);
    CHECK_EQ(xe_mock_configure(2, &other), 0);
    fd = open_node(2);
    CHECK_EQ(make_bo(fd, PAGE, VRAM, WC, 0), 1);
    close_node(fd);
}

static void fault_plan(void)
{
    int fd = open_node(0);
    CHECK_EQ(xe_mock_fault(0, 0xf0, 1, EIO, 0), -EINVAL);
    CHECK_EQ(xe_mock_fault(0, DRM_IOCTL_XE_VM_CREATE, 1, 0, 0), -EINVAL);
    CHECK_EQ(xe_mock_fault(0, DRM_IOCTL_XE_VM_CREATE, 2, EIO, 0), 0);
    CHECK_EQ(xe_mock_fault(0, DRM_IOCTL_GEM_CLOSE, 0, EBUSY, 0), 0);
    struct drm_xe_vm_create vm = {0};
    uint64_t calls = xe_mock_count(0, DRM_IOCTL_XE_VM_CREATE);
    CHECK_EQ(CALL(fd, XE_VM_CREATE, &vm), 0);
    CHECK_EQ(CALL(fd, XE_VM_CREATE, &vm), -EIO);
    CHECK_EQ(CALL(fd, XE_VM_CREATE, &vm), 0);
    CHECK_EQ(xe_mock_count(0, DRM_IOCTL_XE_VM_CREATE), calls + 3);
    CHECK_EQ(close_bo(fd, 1), -EBUSY);
    CHECK_EQ(close_bo(fd, 1), -EBUSY);
    CHECK_EQ(xe_mock_clear_faults(0), 0);
    CHECK_EQ(close_bo(fd, 1), -EINVAL);
    CHECK_EQ(xe_mock_fault(0, DRM_IOCTL_GEM_CLOSE, 1, 0, 20000), 0);
    int64_t start = now_ns();
    CHECK_EQ(close_bo(fd, 1), -EINVAL);
    CHECK(now_ns() - start >= 20000000);
    close_node(fd);
}

int main(void)
{
    setenv("ZE_IPC_MOCK_FAULTS", "XE_GEM_CREATE:2=ENOSPC,VM_CREATE:1=EINTR", 1);
    int fd = open_node(0);
    unsetenv("ZE_IPC_MOCK_FAULTS"); /* every device reads it at its first open */
    struct drm_xe_vm_create vm = {0};
    CHECK_EQ(CALL(fd, XE_VM_CREATE, &vm), -EINTR);
    CHECK_EQ(make_bo(fd, PAGE, VRAM, WC, 0), 1);
    struct drm_xe_gem_create create = {.size = PAGE, .placement = VRAM, .cpu_caching = WC};
    CHECK_EQ(CALL(fd, XE_GEM_CREATE, &create), -ENOSPC);
    CHECK_EQ(close_bo(fd, 1), 0);
    arrays(fd);
    close_node(fd);
    check_nothing_left(0);
    objects();
    fault_plan();
    limits();
    check_nothing_left(0);
    return 0;
}
