/* Many threads on one file, one VM, one device; forks in between. Run under ThreadSanitizer, too. */
#include "check.h"
#include "core.h"

#define THREADS 4

static int fd;
static uint32_t vm_id;
static atomic_bool stop;

static void *worker(void *argument)
{
    uint64_t number = (uintptr_t)argument, base = (number + 1) << 32, fence = 0;
    for (unsigned round = 0; round < 300; round++) {
        uint32_t bo = make_bo(fd, 16 * PAGE, SYSTEM, WB, 0);
        int dma_buf = export_bo(fd, bo, DRM_RDWR | DRM_CLOEXEC), own = open_node(0);
        uint32_t there = (uint32_t)import_bo(own, dma_buf);
        CHECK_EQ(there, 1);
        struct drm_xe_sync sync = {.type = 2, .flags = 1, .addr = (uintptr_t)&fence, .timeline_value = round + 1};
        struct drm_xe_vm_bind args = {.vm_id = vm_id,
                                      .num_binds = 1,
                                      .bind = {.obj = bo, .addr = base, .range = 16 * PAGE, .pat_index = PAT_WB},
                                      .num_syncs = 1,
                                      .syncs = (uintptr_t)&sync};
        CHECK_EQ(CALL(fd, XE_VM_BIND, &args), 0);
        struct drm_xe_wait_user_fence wait = {
            .addr = (uintptr_t)&fence, .value = round + 1, .mask = ~0ull, .timeout = 1000000000};
        CHECK_EQ(CALL(fd, XE_WAIT_USER_FENCE, &wait), 0);
        struct drm_xe_vm_bind_op all = {.op = DRM_XE_VM_BIND_OP_UNMAP_ALL, .obj = bo, .pat_index = PAT_WB};
        CHECK_EQ(round & 1 ? bind_op(fd, vm_id, all) : unmap(fd, vm_id, base + PAGE, 3 * PAGE), 0);
        CHECK_EQ(close_bo(fd, bo), 0);
        close(dma_buf);
        close_node(own);
    }
    return NULL;
}

/* A reader of what the others map and unmap: it sees a page or a hole, never freed memory. */
static void *gpu(void *argument)
{
    struct vm *vm = argument;
    uint64_t word, at, reads = 0;
    while (!atomic_load(&stop)) {
        for (uint64_t n = 0; n < THREADS; n++) {
            int r = vm_read(vm, ((n + 1) << 32) + 15 * PAGE, &word, 8, &at);
            CHECK(r == 0 || r == -EFAULT);
            reads++;
        }
    }
    CHECK(reads);
    return NULL;
}

int main(int argc, char **argv)
{
    bool forks = argc < 2 || strcmp(argv[1], "nofork");
    fd = open_node(0);
    vm_id = make_vm(fd, 0);
    struct vm *vm = vm_lookup(device_peek(0)->files, vm_id);
    pthread_t threads[THREADS], reader;
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    CHECK(pthread_create(&reader, NULL, gpu, vm) == 0);
    for (int i = 0; forks && i < 20; i++) {
        pid_t child = fork();
        if (!child) { /* every lock is free here, whatever the threads were doing */
            alarm(20);
            int own = open_node(0);
            uint32_t bo = make_bo(own, PAGE, VRAM, WC, 0), other = make_vm(own, 0);
            CHECK_EQ(bind_op(own, other, (struct drm_xe_vm_bind_op){.obj = bo, .range = PAGE}), 0);
            CHECK(export_bo(own, bo, 0) >= 0);
            CHECK_EQ(unmap(fd, vm_id, 0, 1ull << 40), 0);
            _exit(0);
        }
        CHECK_EQ(wait_for(child), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&stop, true);
    pthread_join(reader, NULL);
    vm_put(vm);
    close_node(fd);
    check_nothing_left(0);
    return 0;
}
