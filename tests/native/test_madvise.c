/* MADVISE: what it refuses, and objects that lose their bytes. */
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include "device_under_test.h"

enum { ADDRESS_OF = 0x1000000, SIZE = 0x10000, VRAM = 16 << 20 };

static int fd;

static uint32_t vram_bo(uint64_t size)
{
    struct drm_xe_gem_create create = {.size = size, .placement = 2, .cpu_caching = DRM_XE_GEM_CPU_CACHING_WC};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_GEM_CREATE, &create), 0);
    return create.handle;
}

static int purgeable(uint32_t vm, uint32_t value, uint32_t *retained)
{
    *retained = 0;
    return CALL(fd, XE_MADVISE, drm_xe_madvise, .vm_id = vm, .start = ADDRESS_OF, .range = SIZE,
                .type = DRM_XE_VMA_ATTR_PURGEABLE_STATE,
                .purge_state_val = {.val = value, .retained_ptr = (uint64_t)retained});
}

static int map_error(uint32_t bo)
{
    struct drm_xe_gem_mmap_offset offset = {.handle = bo};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_GEM_MMAP_OFFSET, &offset), 0);
    void *map = xe_mock_ops()->mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, (int64_t)offset.offset);
    if (map == MAP_FAILED)
        return -errno;
    munmap(map, SIZE);
    return 0;
}

static int export_error(uint32_t bo)
{
    struct drm_prime_handle prime = {.handle = bo, .flags = DRM_CLOEXEC};
    int r = xe_mock_ioctl(fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime);
    if (!r)
        close(prime.fd);
    return r;
}

/* More device memory than there is. */
static void press(void)
{
    uint32_t bos[40];
    for (int i = 0; i < 40; i++)
        bos[i] = vram_bo(VRAM / 32);
    for (int i = 0; i < 40; i++)
        CHECK_EQUAL(CALL(fd, GEM_CLOSE, drm_gem_close, .handle = bos[i]), 0);
}

#define ADVISE(...) CALL(fd, XE_MADVISE, drm_xe_madvise, .vm_id = vm, .start = ADDRESS_OF, .range = SIZE, __VA_ARGS__)

static void test_errors(void)
{
    uint32_t vm = test_vm(fd, 0), bo = vram_bo(SIZE), retained = 0;
    CHECK_EQUAL(test_bind(fd, vm, bo, ADDRESS_OF, SIZE, 0), 0);
    CHECK_EQUAL(CALL(fd, XE_MADVISE, drm_xe_madvise, .vm_id = vm + 99), -EINVAL);
    CHECK_EQUAL(CALL(fd, XE_MADVISE, drm_xe_madvise, .vm_id = vm, .start = 1, .range = 4096, .type = 1), -EINVAL);
    CHECK_EQUAL(CALL(fd, XE_MADVISE, drm_xe_madvise, .vm_id = vm, .range = 4095, .type = 1), -EINVAL);
    CHECK_EQUAL(CALL(fd, XE_MADVISE, drm_xe_madvise, .vm_id = vm, .range = 0, .type = 1), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 4), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 1, .reserved = {1}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 0, .preferred_mem_loc = {.devmem_fd = (uint32_t)-2}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 0, .preferred_mem_loc = {.region_instance = 1}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 0, .preferred_mem_loc = {.migration_policy = 2}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 0, .preferred_mem_loc = {.reserved = 2}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 0, .preferred_mem_loc = {.devmem_fd = (uint32_t)-1}), 0);
    CHECK_EQUAL(ADVISE(.type = 1, .atomic = {.val = 4}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 1, .atomic = {.val = 1, .pad = 1}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 1, .atomic = {.val = DRM_XE_ATOMIC_DEVICE}), 0);
    CHECK_EQUAL(ADVISE(.type = 1, .atomic = {.val = DRM_XE_ATOMIC_CPU}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 2, .pat_index = {.val = 999}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 2, .pat_index = {.val = 17}), -EINVAL); /* a reserved entry */
    CHECK_EQUAL(ADVISE(.type = 2, .pat_index = {.val = PAT_WB, .reserved = 1}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 2, .pat_index = {.val = PAT_WB}), 0);
    CHECK_EQUAL(ADVISE(.type = 3, .purge_state_val = {.val = 2}), -EINVAL);
    CHECK_EQUAL(ADVISE(.type = 3, .purge_state_val = {.val = 1, .retained_ptr = 8}), -EFAULT);
    retained = 1;
    CHECK_EQUAL(ADVISE(.type = 3, .purge_state_val = {.val = 1, .retained_ptr = (uint64_t)&retained}), -EINVAL);
    /* Nothing mapped there: nothing to do. */
    CHECK_EQUAL(CALL(fd, XE_MADVISE, drm_xe_madvise, .vm_id = vm, .range = 4096, .type = 1), 0);
    CHECK_EQUAL(CALL(fd, XE_VM_DESTROY, drm_xe_vm_destroy, .vm_id = vm), 0);
    CHECK_EQUAL(CALL(fd, GEM_CLOSE, drm_gem_close, .handle = bo), 0);
}

static sigjmp_buf after_signal;

static void on_signal(int signal_number)
{
    siglongjmp(after_signal, signal_number);
}

static void test_purge(void)
{
    uint32_t vm = test_vm(fd, 0), bo = vram_bo(SIZE), retained;
    unsigned char *map = test_map(fd, bo, SIZE);
    memset(map, 0xab, SIZE);
    CHECK_EQUAL(test_bind(fd, vm, bo, ADDRESS_OF, SIZE, 0), 0);
    press();
    CHECK_EQUAL(purgeable(vm, DRM_XE_VMA_PURGEABLE_STATE_DONTNEED, &retained), 0);
    CHECK_EQUAL(retained, 1);
    CHECK_EQUAL(map_error(bo), -EBUSY);
    CHECK_EQUAL(export_error(bo), -EBUSY);
    CHECK_EQUAL(test_bind(fd, vm, bo, ADDRESS_OF * 2, SIZE, 0), -EBUSY);
    CHECK_EQUAL(purgeable(vm, DRM_XE_VMA_PURGEABLE_STATE_WILLNEED, &retained), 0);
    CHECK_EQUAL(retained, 1);
    CHECK_EQUAL(map_error(bo), 0);
    press();
    CHECK_EQUAL(map[SIZE - 1], 0xab);
    CHECK_EQUAL(purgeable(vm, DRM_XE_VMA_PURGEABLE_STATE_DONTNEED, &retained), 0);
    press();
    CHECK_EQUAL(purgeable(vm, DRM_XE_VMA_PURGEABLE_STATE_WILLNEED, &retained), 0);
    CHECK_EQUAL(retained, 0);
    CHECK_EQUAL(map_error(bo), -EINVAL);
    CHECK_EQUAL(export_error(bo), -EINVAL);
    CHECK_EQUAL(test_bind(fd, vm, bo, ADDRESS_OF * 2, SIZE, 0), -EINVAL);
    /* An old mapping is not there any more. */
    struct sigaction action = {.sa_handler = on_signal}, old;
    sigaction(SIGBUS, &action, &old);
    int got = sigsetjmp(after_signal, 1);
    if (!got)
        ((volatile unsigned char *)map)[0] = 1;
    CHECK_EQUAL(got, SIGBUS);
    sigaction(SIGBUS, &old, NULL);
    CHECK_EQUAL(munmap(map, SIZE), 0);
    /* For an engine it is a null mapping. */
    uint32_t batch_bo = test_bo(fd, SIZE), queue = test_queue(fd, vm), done = test_syncobj(fd, 0);
    uint32_t *batch = test_map(fd, batch_bo, SIZE);
    batch[64] = 7;
    CHECK_EQUAL(test_bind(fd, vm, batch_bo, 0x100000, SIZE, 0), 0);
    WRITE_BATCH(batch, STORE_DWORD(ADDRESS_OF, 5), MI(0x2e, 3), ADDRESS(0x100100), ADDRESS(ADDRESS_OF), BATCH_END);
    CHECK_EQUAL(test_exec(fd, queue, 0x100000, &SIGNAL_SYNCOBJ(done), 1), 0);
    CHECK_EQUAL(test_wait(fd, done, 20 * SECOND), 0);
    CHECK_EQUAL(batch[64], 0);
    CHECK_EQUAL(test_banned(fd, queue), 0);
    CHECK_EQUAL(munmap(batch, SIZE), 0);
    CHECK_EQUAL(CALL(fd, GEM_CLOSE, drm_gem_close, .handle = bo), 0);
}

/* Every mapping must agree, and nobody else may know of the object. */
static void test_protection(void)
{
    uint32_t vm = test_vm(fd, 0), other = test_vm(fd, 0), bo = vram_bo(SIZE), shared = vram_bo(SIZE), retained;
    CHECK_EQUAL(test_bind(fd, vm, bo, ADDRESS_OF, SIZE, 0), 0);
    CHECK_EQUAL(test_bind(fd, other, bo, ADDRESS_OF, SIZE, 0), 0);
    CHECK_EQUAL(purgeable(vm, DRM_XE_VMA_PURGEABLE_STATE_DONTNEED, &retained), 0);
    press();
    CHECK_EQUAL(map_error(bo), 0);
    CHECK_EQUAL(test_unbind(fd, other, ADDRESS_OF, SIZE, 0), 0);
    CHECK_EQUAL(map_error(bo), -EBUSY);
    press();
    CHECK_EQUAL(map_error(bo), -EINVAL);

    CHECK_EQUAL(export_error(shared), 0);
    CHECK_EQUAL(test_bind(fd, vm, shared, ADDRESS_OF, SIZE, 0), 0);
    CHECK_EQUAL(purgeable(vm, DRM_XE_VMA_PURGEABLE_STATE_DONTNEED, &retained), 0);
    press();
    CHECK_EQUAL(map_error(shared), 0);
    CHECK_EQUAL(purgeable(vm, DRM_XE_VMA_PURGEABLE_STATE_WILLNEED, &retained), 0);
    CHECK_EQUAL(retained, 1);
}

int main(void)
{
    CHECK_EQUAL(xe_mock_configure(0, &(struct xe_mock_config){.vram_size = VRAM}), 0);
    fd = test_open(0);
    test_errors();
    test_purge();
    test_protection();
    test_close(fd);
    return 0;
}
