/* Queues, jobs and their fences, by the ioctls. */
#include <signal.h>
#include <sys/wait.h>

#include "device_under_test.h"

enum { BATCH = 0x100000, DATA = 0x200000, SIZE = 0x10000 };

static int fd;
static uint32_t vm, batch_bo, data_bo;
static unsigned char *batch;
static uint32_t *data;

static void set_up(uint32_t vm_flags)
{
    fd = test_open(0);
    vm = test_vm(fd, vm_flags);
    batch_bo = test_bo(fd, SIZE);
    data_bo = test_bo(fd, SIZE);
    batch = test_map(fd, batch_bo, SIZE);
    data = test_map(fd, data_bo, SIZE);
    CHECK_EQUAL(test_bind(fd, vm, batch_bo, BATCH, SIZE, 0), 0);
    CHECK_EQUAL(test_bind(fd, vm, data_bo, DATA, SIZE, 0), 0);
}

static void tear_down(void)
{
    test_close(fd);
    CHECK_EQUAL(munmap(batch, SIZE), 0);
    CHECK_EQUAL(munmap(data, SIZE), 0);
}

static uint32_t load(const uint32_t *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static void store(uint32_t *at, uint32_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static void wait_for(const uint32_t *at, uint32_t value)
{
    int64_t deadline = test_now() + 20 * SECOND;
    while (load(at) != value) {
        CHECK(test_now() < deadline);
        sched_yield();
    }
}

static void test_store_and_copy(void)
{
    set_up(0);
    uint32_t queue = test_queue(fd, vm), done = test_syncobj(fd, 0);
    WRITE_BATCH(batch, STORE_DWORD(DATA, 0xc0ffee), BLT(0x5b, 5), 99, 0, 99, ADDRESS(DATA + 0x1000), 0x5a000000,
                BLT(0x5a, 8), 0xfff, 0, 0, 0, ADDRESS(DATA), ADDRESS(DATA + 0x2000), 0, BATCH_END);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, &SIGNAL_SYNCOBJ(done), 1), 0);
    CHECK_EQUAL(test_wait(fd, done, 20 * SECOND), 0);
    CHECK_EQUAL(data[0], 0xc0ffee);
    CHECK_EQUAL(data[0x400], 0x5a5a5a5a);
    CHECK_EQUAL(data[0x800], 0xc0ffee);
    /* The same queue again, on the same thread and after it ended. */
    for (int round = 0; round < 3; round++) {
        data[0] = 0;
        CHECK_EQUAL(CALL(fd, SYNCOBJ_RESET, drm_syncobj_array, .handles = (uint64_t)&done, .count_handles = 1), 0);
        CHECK_EQUAL(test_exec(fd, queue, BATCH, &SIGNAL_SYNCOBJ(done), 1), 0);
        CHECK_EQUAL(test_wait(fd, done, 20 * SECOND), 0);
        CHECK_EQUAL(data[0], 0xc0ffee);
        usleep(round == 1 ? 2200000 : 0);
    }
    CHECK_EQUAL(test_banned(fd, queue), 0);
    CHECK_EQUAL(test_destroy_queue(fd, queue), 0);
    CHECK_EQUAL(test_destroy_queue(fd, queue), -ENOENT);
    tear_down();
}

static void test_user_fence(uint32_t vm_flags)
{
    set_up(vm_flags);
    uint32_t queue = test_queue(fd, vm);
    WRITE_BATCH(batch, STORE_DWORD(DATA, 7), BATCH_END);
    uint64_t *fence = (uint64_t *)(void *)(data + 16);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, &USER_FENCE(DATA + 64, UINT64_C(0x1122334455667788)), 1), 0);
    CHECK_EQUAL(test_wait_user_fence(fd, fence, UINT64_C(0x1122334455667788), queue, 20 * SECOND), 0);
    CHECK_EQUAL(data[0], 7);
    /* A fence nowhere: the queue is banned, and whoever waits with it is told. */
    CHECK_EQUAL(test_exec(fd, queue, BATCH, &USER_FENCE(UINT64_C(0x7000000000), 1), 1), 0);
    CHECK_EQUAL(test_wait_user_fence(fd, fence, 1, queue, 20 * SECOND), -EIO);
    CHECK_EQUAL(test_banned(fd, queue), 1);
    tear_down();
}

/* In-fences, out-fences and order: a batch that waits for the CPU holds up all that follow it. */
static void test_order(void)
{
    set_up(0);
    uint32_t first = test_queue(fd, vm), second = test_queue(fd, vm), a = test_syncobj(fd, 0), b = test_syncobj(fd, 0);
    WRITE_BATCH(batch, STORE_DWORD(DATA, 1), WAIT_DWORD(DATA + 4, 1), STORE_DWORD(DATA + 8, 1), BATCH_END);
    WRITE_BATCH(batch + 0x1000, MI(0x2e, 3), ADDRESS(DATA + 12), ADDRESS(DATA + 8), BATCH_END);
    CHECK_EQUAL(test_exec(fd, first, BATCH, &SIGNAL_SYNCOBJ(a), 1), 0);
    const struct drm_xe_sync both[] = {WAIT_SYNCOBJ(a), SIGNAL_SYNCOBJ(b)};
    CHECK_EQUAL(test_exec(fd, second, BATCH + 0x1000, both, 2), 0);
    wait_for(data, 1);
    CHECK_EQUAL(test_wait(fd, a, SECOND / 50), -ETIME);
    CHECK_EQUAL(test_wait(fd, b, 0), -ETIME);
    /* Unbinding waits for the batches that were submitted before it: the mapping stays until they are done. */
    uint32_t unbound = test_syncobj(fd, 0);
    CHECK_EQUAL(test_unbind(fd, vm, DATA, SIZE, unbound), 0);
    CHECK_EQUAL(test_wait(fd, unbound, SECOND / 50), -ETIME);
    store(data + 1, 1);
    CHECK_EQUAL(test_wait(fd, b, 20 * SECOND), 0);
    CHECK_EQUAL(test_wait(fd, a, 0), 0);
    CHECK_EQUAL(test_wait(fd, unbound, 20 * SECOND), 0);
    CHECK_EQUAL(data[3], 1);
    CHECK_EQUAL(test_banned(fd, first) | test_banned(fd, second), 0);
    tear_down();
}

/* Ends a queue that spins, in every way there is, and promptly. */
static void test_kill(void)
{
    for (int how = 0; how < 3; how++) {
        set_up(DRM_XE_VM_CREATE_FLAG_LR_MODE);
        uint32_t queue = test_queue(fd, vm), other = test_queue(fd, vm);
        WRITE_BATCH(batch, STORE_DWORD(DATA, 1), WAIT_DWORD(DATA + 4, 1), BATCH_END);
        WRITE_BATCH(batch + 0x1000, STORE_DWORD(DATA + 8, 1), MI(0x31, 1) | 1u << 8, ADDRESS(BATCH + 0x1000));
        CHECK_EQUAL(test_exec(fd, queue, BATCH, NULL, 0), 0);
        for (int i = 0; i < 10; i++)
            CHECK_EQUAL(test_exec(fd, queue, BATCH, NULL, 0), 0);
        CHECK_EQUAL(test_exec(fd, other, BATCH + 0x1000, NULL, 0), 0);
        wait_for(data, 1);
        wait_for(data + 2, 1);
        CHECK_EQUAL(CALL(fd, XE_VM_DESTROY, drm_xe_vm_destroy, .vm_id = vm), -EBUSY);
        int64_t start = test_now();
        if (how == 0) {
            CHECK_EQUAL(test_destroy_queue(fd, queue), 0);
            CHECK_EQUAL(test_destroy_queue(fd, other), 0);
            CHECK_EQUAL(CALL(fd, XE_VM_DESTROY, drm_xe_vm_destroy, .vm_id = vm), 0);
        }
        tear_down();
        CHECK(test_now() - start < 10 * SECOND);
    }
}

static void test_destroyed_jobs_signal(void)
{
    set_up(0);
    uint32_t queue = test_queue(fd, vm), running = test_syncobj(fd, 0), pending = test_syncobj(fd, 0);
    uint32_t never = test_syncobj(fd, 0), blocked = test_syncobj(fd, 0), other = test_queue(fd, vm);
    WRITE_BATCH(batch, STORE_DWORD(DATA, 1), WAIT_DWORD(DATA + 4, 1), BATCH_END);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, &SIGNAL_SYNCOBJ(running), 1), 0);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, &SIGNAL_SYNCOBJ(pending), 1), 0);
    const struct drm_xe_sync both[] = {WAIT_SYNCOBJ(running), SIGNAL_SYNCOBJ(blocked)};
    CHECK_EQUAL(test_exec(fd, other, BATCH, both, 2), 0);
    CHECK_EQUAL(test_exec(fd, other, BATCH, &WAIT_SYNCOBJ(never), 1), -EINVAL);
    wait_for(data, 1);
    CHECK_EQUAL(test_destroy_queue(fd, other), 0);
    CHECK_EQUAL(test_wait(fd, blocked, 20 * SECOND), 0);
    CHECK_EQUAL(test_wait(fd, running, 0), -ETIME);
    CHECK_EQUAL(test_destroy_queue(fd, queue), 0);
    CHECK_EQUAL(test_wait(fd, running, 20 * SECOND), 0);
    CHECK_EQUAL(test_wait(fd, pending, 20 * SECOND), 0);
    tear_down();
}

/* Two engines at once, each with a batch of its own; and one of two, whichever. */
static void test_wide(void)
{
    set_up(0);
    struct drm_xe_engine_class_instance engines[2] = {
        {.engine_class = DRM_XE_ENGINE_CLASS_VIDEO_DECODE, .engine_instance = 0, .gt_id = 1},
        {.engine_class = DRM_XE_ENGINE_CLASS_VIDEO_DECODE, .engine_instance = 1, .gt_id = 1},
    };
    struct drm_xe_exec_queue_create create = {
        .width = 2, .num_placements = 1, .vm_id = vm, .instances = (uint64_t)engines};
    uint32_t done = test_syncobj(fd, 0);
    struct drm_xe_sync out = SIGNAL_SYNCOBJ(done);
    const uint64_t batches[2] = {BATCH, BATCH + 0x1000};
    WRITE_BATCH(batch, STORE_DWORD(DATA, 1), BATCH_END);
    WRITE_BATCH(batch + 0x1000, STORE_DWORD(DATA + 4, 2), BATCH_END);
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC_QUEUE_CREATE, &create), 0);
    struct drm_xe_exec exec = {.exec_queue_id = create.exec_queue_id,
                               .num_syncs = 1,
                               .syncs = (uint64_t)&out,
                               .address = (uint64_t)batches,
                               .num_batch_buffer = 1};
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC, &exec), -EINVAL);
    exec.num_batch_buffer = 2;
    exec.address = 8;
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC, &exec), -EFAULT);
    exec.address = (uint64_t)batches;
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC, &exec), 0);
    CHECK_EQUAL(test_wait(fd, done, 20 * SECOND), 0);
    CHECK_EQUAL(data[0], 1);
    CHECK_EQUAL(data[1], 2);
    create.width = 1;
    create.num_placements = 2;
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC_QUEUE_CREATE, &create), 0);
    CHECK_EQUAL(test_exec(fd, create.exec_queue_id, BATCH, NULL, 0), 0);
    engines[1].engine_class = DRM_XE_ENGINE_CLASS_VIDEO_ENHANCE;
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC_QUEUE_CREATE, &create), -EINVAL);
    /* Side by side and in order. */
    create.width = 2;
    create.num_placements = 1;
    engines[1] = engines[0];
    engines[0].engine_instance = 1;
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC_QUEUE_CREATE, &create), -EINVAL);
    tear_down();
}

/* Without a batch the out-syncs follow the job before. */
static void test_no_batch(void)
{
    set_up(0);
    uint32_t queue = test_queue(fd, vm), after = test_syncobj(fd, 0);
    uint64_t memory = 0;
    const struct drm_xe_sync out[] = {SIGNAL_SYNCOBJ(after), USER_FENCE((uint64_t)&memory, 9)};
    struct drm_xe_exec nothing = {.exec_queue_id = queue, .num_syncs = 2, .syncs = (uint64_t)out};
    WRITE_BATCH(batch, WAIT_DWORD(DATA, 1), BATCH_END);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, NULL, 0), 0);
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC, &nothing), 0);
    CHECK_EQUAL(test_wait(fd, after, SECOND / 50), -ETIME);
    store(data, 1);
    CHECK_EQUAL(test_wait_user_fence(fd, &memory, 9, queue, 20 * SECOND), 0);
    CHECK_EQUAL(test_wait(fd, after, 20 * SECOND), 0);
    nothing.syncs = (uint64_t)&WAIT_SYNCOBJ(after);
    nothing.num_syncs = 1;
    CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC, &nothing), -EOPNOTSUPP);
    tear_down();
}

static void test_too_many_jobs(void)
{
    set_up(DRM_XE_VM_CREATE_FLAG_LR_MODE);
    uint32_t queue = test_queue(fd, vm);
    WRITE_BATCH(batch, WAIT_DWORD(DATA, 1), BATCH_END);
    int jobs = 0, r;
    while ((r = test_exec(fd, queue, BATCH, NULL, 0)) == 0)
        jobs++;
    CHECK_EQUAL(r, -EAGAIN);
    CHECK_EQUAL(jobs, 1000);
    store(data, 1);
    int64_t deadline = test_now() + 20 * SECOND;
    while (test_exec(fd, queue, BATCH, NULL, 0) == -EAGAIN)
        CHECK(test_now() < deadline);
    tear_down();
}

/* What a batch must not do bans its queue, not its neighbours. */
static void test_bans(void)
{
    static const uint32_t bad[][8] = {
        {0x72080026},                                   /* COMPUTE_WALKER */
        {0x7b000005},                                   /* 3DPRIMITIVE */
        {STORE_DWORD(UINT64_C(0x5000000000), 1)},       /* nothing there */
        {STORE_DWORD(DATA + SIZE, 1)},                  /* behind the end */
        {STORE_DWORD(0x300000, 1)},                     /* read-only */
        {MI(0x31, 1), ADDRESS(UINT64_C(0x5000000000))}, /* a batch nowhere */
        {0xffffffff},
    };
    for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        set_up(0);
        CHECK_EQUAL(test_bind(fd, vm, data_bo, 0x300000, SIZE, DRM_XE_VM_BIND_FLAG_READONLY), 0);
        uint32_t queue = test_queue(fd, vm), good = test_queue(fd, vm), done = test_syncobj(fd, 0);
        memcpy(batch, bad[i], sizeof(bad[i]));
        CHECK_EQUAL(test_exec(fd, queue, BATCH, &SIGNAL_SYNCOBJ(done), 1), 0);
        CHECK_EQUAL(test_wait(fd, done, 20 * SECOND), 0);
        CHECK_EQUAL(test_banned(fd, queue), 1);
        CHECK_EQUAL(test_exec(fd, queue, BATCH, NULL, 0), -ECANCELED);
        uint64_t memory = 1;
        CHECK_EQUAL(test_wait_user_fence(fd, &memory, 2, queue, 20 * SECOND), -EIO);
        WRITE_BATCH(batch, STORE_DWORD(DATA, 5), BATCH_END);
        CHECK_EQUAL(CALL(fd, SYNCOBJ_RESET, drm_syncobj_array, .handles = (uint64_t)&done, .count_handles = 1), 0);
        CHECK_EQUAL(test_exec(fd, good, BATCH, &SIGNAL_SYNCOBJ(done), 1), 0);
        CHECK_EQUAL(test_wait(fd, done, 20 * SECOND), 0);
        CHECK_EQUAL(data[0], 5);
        struct drm_xe_vm_get_property get = {.vm_id = vm};
        CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_VM_GET_PROPERTY, &get), 0);
        CHECK_EQUAL(get.size, i >= 2 && i <= 5 ? 48 : 0);
        if (i == 4) {
            struct xe_vm_fault fault;
            get.data = (uint64_t)&fault;
            CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_VM_GET_PROPERTY, &get), 0);
            CHECK_EQUAL(fault.address, 0x300000);
            CHECK_EQUAL(fault.access_type, FAULT_ACCESS_TYPE_WRITE);
            CHECK_EQUAL(fault.fault_type, FAULT_TYPE_WRITE_ACCESS);
            get.size = 96;
            CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_VM_GET_PROPERTY, &get), -EINVAL);
            get.size = 47;
            CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_VM_GET_PROPERTY, &get), -EINVAL);
            get = (struct drm_xe_vm_get_property){.vm_id = vm, .property = 1};
            CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_VM_GET_PROPERTY, &get), -EINVAL);
            get = (struct drm_xe_vm_get_property){.vm_id = vm + 99};
            CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_VM_GET_PROPERTY, &get), -ENOENT);
        }
        tear_down();
    }
}

static void test_timeout(void)
{
    setenv("ZE_IPC_MOCK_JOB_TIMEOUT_MS", "200", 1);
    set_up(0);
    uint32_t queue = test_queue(fd, vm), done = test_syncobj(fd, 0);
    WRITE_BATCH(batch, WAIT_DWORD(DATA, 1), BATCH_END);
    int64_t start = test_now();
    CHECK_EQUAL(test_exec(fd, queue, BATCH, &SIGNAL_SYNCOBJ(done), 1), 0);
    CHECK_EQUAL(test_wait(fd, done, 20 * SECOND), 0);
    CHECK(test_now() - start > SECOND / 6);
    CHECK_EQUAL(test_banned(fd, queue), 1);
    tear_down();
    unsetenv("ZE_IPC_MOCK_JOB_TIMEOUT_MS");
}

/* Unmapped addresses of a VM with scratch pages, and null mappings. */
static void test_scratch(void)
{
    set_up(DRM_XE_VM_CREATE_FLAG_SCRATCH_PAGE);
    CHECK_EQUAL(CALL(fd, XE_VM_BIND, drm_xe_vm_bind, .vm_id = vm, .num_binds = 1,
                     .bind = {.range = SIZE, .addr = 0x300000, .flags = DRM_XE_VM_BIND_FLAG_NULL, .pat_index = PAT_WB}),
                0);
    uint32_t queue = test_queue(fd, vm), done = test_syncobj(fd, 0);
    data[0] = data[1] = 9;
    WRITE_BATCH(batch, STORE_DWORD(UINT64_C(0x5000000000), 1), MI(0x2e, 3), ADDRESS(DATA),
                ADDRESS(UINT64_C(0x5000000000)), STORE_DWORD(0x300000, 1), MI(0x2e, 3), ADDRESS(DATA + 4),
                ADDRESS(0x300000), BATCH_END);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, &SIGNAL_SYNCOBJ(done), 1), 0);
    CHECK_EQUAL(test_wait(fd, done, 20 * SECOND), 0);
    CHECK_EQUAL(data[0] | data[1], 0);
    CHECK_EQUAL(test_banned(fd, queue), 0);
    tear_down();
}

/* One exec for ever: a ring that the program writes into while the engine waits in it. */
static void test_ring(void)
{
    set_up(DRM_XE_VM_CREATE_FLAG_LR_MODE | DRM_XE_VM_CREATE_FLAG_FAULT_MODE);
    uint32_t queue = test_queue(fd, vm);
    enum { SLOT = 64, SLOTS = 128 };
    WRITE_BATCH(batch, WAIT_DWORD(DATA, 1));
    CHECK_EQUAL(test_exec(fd, queue, BATCH, NULL, 0), 0);
    for (uint32_t turn = 1; turn <= 2000; turn++) {
        uint64_t next = BATCH + turn % SLOTS * SLOT, here = BATCH + (turn - 1) % SLOTS * SLOT;
        WRITE_BATCH(batch + (next - BATCH), WAIT_DWORD(DATA, turn + 1));
        WRITE_BATCH(batch + (here - BATCH) + 20, STORE_DWORD(DATA + 4, turn), MI(0x31, 1) | 1u << 8, ADDRESS(next));
        store(data, turn);
        wait_for(data + 1, turn);
    }
    test_close(fd);
    CHECK_EQUAL(munmap(batch, SIZE), 0);
    CHECK_EQUAL(munmap(data, SIZE), 0);
}

static void test_fork(void)
{
    set_up(0);
    uint32_t queue = test_queue(fd, vm), done = test_syncobj(fd, 0);
    WRITE_BATCH(batch, WAIT_DWORD(DATA, 1), BATCH_END);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, &SIGNAL_SYNCOBJ(done), 1), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        uint32_t own = test_queue(fd, vm), finished = test_syncobj(fd, 0);
        WRITE_BATCH(batch + 0x1000, STORE_DWORD(DATA + 4, 3), BATCH_END);
        CHECK_EQUAL(test_exec(fd, own, BATCH + 0x1000, &SIGNAL_SYNCOBJ(finished), 1), 0);
        CHECK_EQUAL(test_wait(fd, finished, 20 * SECOND), 0);
        CHECK_EQUAL(test_destroy_queue(fd, queue), 0);
        _exit(data[1] == 3 ? 0 : 1);
    }
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(test_wait(fd, done, 0), -ETIME);
    store(data, 1);
    CHECK_EQUAL(test_wait(fd, done, 20 * SECOND), 0);
    tear_down();
}

int main(int argc, char **argv)
{
    (void)argv;
    test_store_and_copy();
    test_user_fence(0);
    test_user_fence(DRM_XE_VM_CREATE_FLAG_LR_MODE);
    test_order();
    test_kill();
    test_destroyed_jobs_signal();
    test_no_batch();
    test_wide();
    test_too_many_jobs();
    test_bans();
    test_timeout();
    test_scratch();
    test_ring();
    if (argc == 1) /* a forked child of a process with threads is more than ThreadSanitizer takes */
        test_fork();
    return 0;
}
