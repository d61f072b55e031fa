/* When more device memory is needed at once than there is: who is told, and at which call. */
#include "device_under_test.h"

enum { VRAM = 16 << 20, PART = 4 << 20, PARTS = VRAM / PART, BASE = 1 << 24, BATCH = 0x100000, SYSTEM = 1, DEVICE = 2 };

static int fd;

static uint32_t new_bo(uint32_t vm, uint32_t placement)
{
    struct drm_xe_gem_create create = {
        .size = PART, .placement = placement, .vm_id = vm, .cpu_caching = DRM_XE_GEM_CPU_CACHING_WC};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_GEM_CREATE, &create), 0);
    return create.handle;
}

static void fill(uint32_t vm, uint32_t private, uint32_t bos[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        bos[i] = new_bo(private, DEVICE);
        CHECK_EQUAL(test_bind(fd, vm, bos[i], BASE + (uint64_t)i * PART, PART, 0), 0);
    }
}

static void drop(uint32_t bo)
{
    CHECK_EQUAL(CALL(fd, GEM_CLOSE, drm_gem_close, .handle = bo), 0);
}

static void destroy_vm(uint32_t vm)
{
    CHECK_EQUAL(CALL(fd, XE_VM_DESTROY, drm_xe_vm_destroy, .vm_id = vm), 0);
}

/* A long-running VM is told by the bind, which leaves its mappings as they were. */
static void test_long_running(bool private)
{
    uint32_t vm = test_vm(fd, DRM_XE_VM_CREATE_FLAG_LR_MODE), bos[PARTS];
    uint64_t next = BASE + (uint64_t)VRAM;
    fill(vm, private ? vm : 0, bos);
    uint32_t more = new_bo(private ? vm : 0, DEVICE), movable = new_bo(0, SYSTEM | DEVICE);
    CHECK_EQUAL(test_bind(fd, vm, more, next, PART, 0), -ENOMEM);
    CHECK_EQUAL(test_bind(fd, vm, more, BASE, PART, 0), -ENOMEM);
    /* Once more what is in already, and what can be elsewhere, need no more room. */
    CHECK_EQUAL(test_bind(fd, vm, bos[0], next, PART, 0), 0);
    CHECK_EQUAL(test_bind(fd, vm, movable, next + PART, PART, 0), 0);
    CHECK_EQUAL(test_unbind(fd, vm, BASE + PART, PART, 0), 0);
    CHECK_EQUAL(test_bind(fd, vm, more, BASE + PART, PART, 0), 0);
    destroy_vm(vm);
    for (int i = 0; i < PARTS; i++)
        drop(bos[i]);
    drop(more);
    drop(movable);
}

/* Other VMs make way: only what one VM needs counts. */
static void test_others_make_way(void)
{
    uint32_t first = test_vm(fd, DRM_XE_VM_CREATE_FLAG_LR_MODE), second = test_vm(fd, DRM_XE_VM_CREATE_FLAG_LR_MODE);
    uint32_t a[PARTS], b[PARTS];
    fill(first, 0, a);
    fill(second, 0, b);
    destroy_vm(first);
    destroy_vm(second);
    for (int i = 0; i < PARTS; i++) {
        drop(a[i]);
        drop(b[i]);
    }
}

/* Any other VM binds what it likes, and is told by the EXEC; one that faults is never told. */
static void test_exec_is_told(uint32_t flags, int expected)
{
    uint32_t vm = test_vm(fd, flags), bos[PARTS], batch_bo = test_bo(fd, 0x10000), queue;
    uint32_t *batch = test_map(fd, batch_bo, 0x10000);
    batch[0] = BATCH_END;
    CHECK_EQUAL(test_bind(fd, vm, batch_bo, BATCH, 0x10000, 0), 0);
    fill(vm, 0, bos);
    CHECK_EQUAL(test_queue_of(fd, vm, DRM_XE_ENGINE_CLASS_COPY, &queue), 0);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, NULL, 0), 0);
    uint32_t more = new_bo(0, DEVICE);
    CHECK_EQUAL(test_bind(fd, vm, more, BASE + (uint64_t)VRAM, PART, 0), 0);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, NULL, 0), expected);
    CHECK_EQUAL(test_unbind(fd, vm, BASE, PART, 0), 0);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, NULL, 0), 0);
    CHECK_EQUAL(test_destroy_queue(fd, queue), 0);
    destroy_vm(vm);
    for (int i = 0; i < PARTS; i++)
        drop(bos[i]);
    drop(more);
    drop(batch_bo);
    CHECK_EQUAL(munmap(batch, 0x10000), 0);
}

int main(void)
{
    CHECK_EQUAL(xe_mock_configure(0, &(struct xe_mock_config){.vram_size = VRAM}), 0);
    fd = test_open(0);
    test_long_running(false);
    test_long_running(true);
    test_others_make_way();
    test_exec_is_told(0, -ENOMEM);
    test_exec_is_told(DRM_XE_VM_CREATE_FLAG_LR_MODE | DRM_XE_VM_CREATE_FLAG_FAULT_MODE, 0);
    test_close(fd);
    return 0;
}
