/* Binds that wait: until their fences signal the page tables show the old mappings, the ioctl's bookkeeping the new
 * ones. */
#include "check.h"
#include "core.h"

static struct vm *vm;
static uint64_t at;

static int gpu_sees(uint64_t va, uint64_t *word)
{
    return vm_read(vm, va, word, 8, &at);
}

static void fill(int fd, uint32_t bo, uint64_t value)
{
    uint64_t *p = map_cpu(fd, bo, 4 * PAGE);
    for (unsigned i = 0; i < 4; i++)
        p[i * 512] = value + i;
    munmap(p, 4 * PAGE);
}

static uint32_t num_mappings(int fd, uint32_t id)
{
    struct drm_xe_vm_query_mem_range_attr args = {.vm_id = id, .range = 1ull << 48};
    CHECK_EQ(CALL(fd, XE_VM_QUERY_MEM_RANGE_ATTRS, &args), 0);
    return args.num_mem_ranges;
}

static uint32_t bind_queue(int fd, uint32_t id)
{
    struct drm_xe_engine_class_instance instance = {.engine_class = DRM_XE_ENGINE_CLASS_VM_BIND};
    struct drm_xe_exec_queue_create args = {
        .width = 1, .num_placements = 1, .vm_id = id, .instances = (uintptr_t)&instance};
    CHECK_EQ(CALL(fd, XE_EXEC_QUEUE_CREATE, &args), 0);
    return args.exec_queue_id;
}

static void two_queues(int fd)
{
    uint32_t id = make_vm(fd, 0), bo = make_bo(fd, 4 * PAGE, SYSTEM, WB, 0);
    uint32_t queues[2] = {bind_queue(fd, id), bind_queue(fd, id)};
    struct drm_syncobj_create cork = {0};
    CHECK_EQ(CALL(fd, SYNCOBJ_CREATE, &cork), 0);
    struct vm *space = vm_lookup(device_peek(0)->files, id);
    for (unsigned conflict = 0; conflict < 2; conflict++) {
        const uint64_t va = (1ull << 33) + (conflict ? 1ull << 39 : 0);
        if (!conflict)
            CHECK_EQ(map_bo(fd, id, bo, 0, va + (1 << 20), PAGE), 0); /* the page table is there already */
        struct fence *fence = fence_new();
        struct syncobj *syncobj = syncobj_lookup(device_peek(0)->files, cork.handle);
        CHECK_EQ(syncobj_install(syncobj, 0, fence), 0);
        syncobj_put(syncobj);
        struct drm_xe_sync in = {.type = DRM_XE_SYNC_TYPE_SYNCOBJ, .handle = cork.handle};
        struct drm_xe_vm_bind args = {.vm_id = id,
                                      .exec_queue_id = queues[0],
                                      .num_binds = 1,
                                      .bind = {.obj = bo, .addr = va, .range = PAGE, .pat_index = PAT_WB},
                                      .num_syncs = 1,
                                      .syncs = (uintptr_t)&in};
        CHECK_EQ(CALL(fd, XE_VM_BIND, &args), 0);
        args.exec_queue_id = queues[1];
        args.bind.addr = va + 2 * PAGE;
        args.num_syncs = 0;
        CHECK_EQ(CALL(fd, XE_VM_BIND, &args), 0);
        uint64_t word;
        CHECK_EQ(vm_read(space, va, &word, 8, &at), -EFAULT);
        CHECK_EQ(vm_read(space, va + 2 * PAGE, &word, 8, &at), conflict ? -EFAULT : 0);
        fence_signal(fence, 0);
        fence_put(fence);
        CHECK_EQ(vm_read(space, va, &word, 8, &at), 0);
        CHECK_EQ(vm_read(space, va + 2 * PAGE, &word, 8, &at), 0);
    }
    vm_put(space);
    struct drm_syncobj_destroy destroy = {.handle = cork.handle};
    CHECK_EQ(CALL(fd, SYNCOBJ_DESTROY, &destroy), 0);
    for (unsigned i = 0; i < 2; i++) {
        struct drm_xe_exec_queue_destroy queue = {.exec_queue_id = queues[i]};
        CHECK_EQ(CALL(fd, XE_EXEC_QUEUE_DESTROY, &queue), 0);
    }
    destroy_vm(fd, id);
    CHECK_EQ(close_bo(fd, bo), 0);
}

int main(void)
{
    int fd = open_node(0);
    uint32_t id = make_vm(fd, 0), a = make_bo(fd, 4 * PAGE, SYSTEM, WB, 0), b = make_bo(fd, 4 * PAGE, SYSTEM, WB, 0);
    const uint64_t va = 0x10000;
    uint64_t word = 0, user_fence = 0;
    vm = vm_lookup(device_peek(0)->files, id);
    fill(fd, a, 100);
    fill(fd, b, 200);
    CHECK_EQ(map_bo(fd, id, a, 0, va, 4 * PAGE), 0);

    /* A job of the GPU runs: an unbind waits for it, with everything behind it that overlaps. */
    struct fence *exec = fence_new();
    CHECK_EQ(vm_add_exec(vm, exec), 0);
    struct drm_xe_sync sync = {.type = 2, .flags = 1, .addr = (uintptr_t)&user_fence, .timeline_value = 9};
    struct drm_xe_vm_bind replace = {.vm_id = id,
                                     .num_binds = 1,
                                     .bind = {.obj = b, .addr = va + PAGE, .range = PAGE, .pat_index = PAT_WB},
                                     .num_syncs = 1,
                                     .syncs = (uintptr_t)&sync};
    CHECK_EQ(CALL(fd, XE_VM_BIND, &replace), 0);
    CHECK_EQ(user_fence, 0);
    CHECK_EQ(num_mappings(fd, id), 3);
    CHECK_EQ(gpu_sees(va + PAGE, &word), 0);
    CHECK_EQ(word, 101);
    /* Its mapping has a user fence that was not written yet: it cannot go. */
    CHECK_EQ(unmap(fd, id, va, 4 * PAGE), -EBUSY);
    CHECK_EQ(num_mappings(fd, id), 3);
    CHECK_EQ(unmap(fd, id, va + 3 * PAGE, PAGE), 0); /* its neighbour can; it waits as well */
    CHECK_EQ(num_mappings(fd, id), 3);
    CHECK_EQ(gpu_sees(va + 3 * PAGE, &word), 0);
    CHECK_EQ(word, 103);
    /* Elsewhere, too: one queue's binds keep their order. */
    CHECK_EQ(map_bo(fd, id, b, 0, va + (1 << 20), 4 * PAGE), 0);
    CHECK_EQ(num_mappings(fd, id), 4);
    CHECK_EQ(gpu_sees(va + (1 << 20) + PAGE, &word), -EFAULT);
    /* A long read crosses old and new alike. */
    char *bytes = malloc(4 * PAGE);
    CHECK_EQ(vm_read(vm, va, bytes, 4 * PAGE, &at), 0);
    for (unsigned i = 0; i < 4; i++)
        CHECK_EQ(*(uint64_t *)(bytes + i * PAGE), 100 + i);
    /* GEM_CLOSE of what the page tables still show. */
    CHECK_EQ(close_bo(fd, a), 0);
    CHECK_EQ(gpu_sees(va + 3 * PAGE, &word), 0);

    struct drm_xe_wait_user_fence wait = {
        .addr = (uintptr_t)&user_fence, .value = 9, .mask = ~0ull, .timeout = 1000000};
    CHECK_EQ(CALL(fd, XE_WAIT_USER_FENCE, &wait), -ETIME);
    fence_signal(exec, 0);
    CHECK_EQ(user_fence, 9);
    wait.timeout = 0;
    CHECK_EQ(CALL(fd, XE_WAIT_USER_FENCE, &wait), 0);
    CHECK_EQ(gpu_sees(va + PAGE, &word), 0);
    CHECK_EQ(word, 200);
    CHECK_EQ(gpu_sees(va + (1 << 20) + PAGE, &word), 0);
    CHECK_EQ(word, 201);
    CHECK_EQ(gpu_sees(va + 3 * PAGE, &word), -EFAULT);
    CHECK_EQ(at, va + 3 * PAGE);
    CHECK_EQ(vm_read(vm, va, bytes, 4 * PAGE, &at), -EFAULT);
    CHECK_EQ(at, va + 3 * PAGE);
    CHECK_EQ(unmap(fd, id, va, 4 * PAGE), 0);
    CHECK_EQ(num_mappings(fd, id), 1);
    CHECK_EQ(stats_of(0).objects, 1);
    fence_put(exec);

    /* Two queues' binds are independent, unless a page table that comes with one of them holds the other, too. */
    two_queues(fd);

    /* An array of more than the driver's buffers hold is refused while it would have to wait, and passes when it need
     * not. */
    exec = fence_new();
    CHECK_EQ(vm_add_exec(vm, exec), 0);
    uint32_t large = make_bo(fd, 2 << 20, VRAM, WC, 0);
    struct drm_xe_vm_bind_op *ops = calloc(1025, sizeof(*ops));
    for (uint32_t i = 0; i < 1025; i++)
        ops[i] = (struct drm_xe_vm_bind_op){.obj = large, .addr = (1ull << 32) + i * (2ull << 20), .range = 2 << 20};
    ops[1024] = (struct drm_xe_vm_bind_op){.op = DRM_XE_VM_BIND_OP_UNMAP, .addr = va + (1 << 20), .range = PAGE};
    CHECK_EQ(bind_array(fd, id, ops, 1025), -ENOBUFS);
    CHECK_EQ(num_mappings(fd, id), 1);
    CHECK_EQ(bind_array(fd, id, ops + 1024 - 256, 257), 0);
    CHECK_EQ(bind_array(fd, id, ops, 768), 0);

    /* A VM destroyed under a bind that waits: nothing is seen any more, and the fence is written all the same. */
    user_fence = 0;
    replace.bind = (struct drm_xe_vm_bind_op){.op = DRM_XE_VM_BIND_OP_UNMAP, .addr = va, .range = 1ull << 30};
    CHECK_EQ(CALL(fd, XE_VM_BIND, &replace), 0);
    destroy_vm(fd, id);
    CHECK_EQ(gpu_sees(va + (1 << 20) + PAGE, &word), -EFAULT);
    CHECK_EQ(user_fence, 0);
    fence_signal(exec, 0);
    CHECK_EQ(user_fence, 9);
    fence_put(exec);
    vm_put(vm);
    free(bytes);
    free(ops);
    close_node(fd);
    check_nothing_left(0);
    return 0;
}
