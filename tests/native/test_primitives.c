/* Ids against a bitmap, fences under threads, mappings' treap in bulk, safe access to bad memory. */
#include "check.h"
#include "core.h"
#include "vma.h"

#define IDS 5000

static void ids(void)
{
    static bool used[IDS];
    struct idr idr = {0};
    uint32_t state = 1, live = 0, lowest = 1;
    int error;
    for (int step = 0; step < 200000; step++) {
        state = state * 1664525 + 1013904223;
        uint32_t id = 1 + (state >> 8) % (IDS - 1);
        if (state >> 30 == 0 && live < IDS - 64) {
            for (lowest = 1; used[lowest];)
                lowest++;
            CHECK_EQ(idr_alloc(&idr, &used[lowest], &error), lowest);
            used[lowest] = true;
            live++;
        } else if (state >> 30 == 1) {
            CHECK_EQ(idr_alloc_at(&idr, id, &used[id]), used[id] ? -ENOSPC : 0);
            live += !used[id];
            used[id] = true;
        } else if (state >> 30 == 2) {
            CHECK(idr_remove(&idr, id) == (used[id] ? &used[id] : NULL));
            live -= used[id];
            used[id] = false;
        } else {
            CHECK(idr_find(&idr, id) == (used[id] ? &used[id] : NULL));
        }
        CHECK_EQ(idr.count, live);
        if (step % 5000 == 0) {
            uint32_t at = 0, seen = 0;
            for (; idr_next(&idr, &at); at++, seen++)
                CHECK(used[at]);
            CHECK_EQ(seen, live);
        }
    }
    idr_destroy(&idr);
    char thing;
    CHECK_EQ(idr_alloc_at(&idr, 0, &thing), -EINVAL);
    CHECK_EQ(idr_alloc_at(&idr, IDR_MAX, &thing), 0);
    CHECK_EQ(idr_alloc(&idr, &thing, &error), 1);
    uint32_t at = 2;
    CHECK(idr_next(&idr, &at) == &thing && at == IDR_MAX);
    CHECK(idr_remove(&idr, IDR_MAX) == &thing && idr_remove(&idr, 1) == &thing && !idr.root);
    for (uint32_t i = 1; i <= 300000; i++)
        CHECK_EQ(idr_alloc(&idr, &thing, &error), i);
    CHECK(idr_remove(&idr, 4097) && idr_remove(&idr, 64));
    CHECK_EQ(idr_alloc(&idr, &thing, &error), 64);
    CHECK_EQ(idr_alloc(&idr, &thing, &error), 4097);
    CHECK_EQ(idr_alloc(&idr, &thing, &error), 300001);
    idr_destroy(&idr);

    /* Removing 0 beside another id makes it one like others; in an empty table it does not. */
    CHECK(!idr_remove(&idr, 0));
    CHECK_EQ(idr_alloc(&idr, &thing, &error), 1);
    CHECK(!idr_remove(&idr, 0));
    CHECK_EQ(idr_alloc(&idr, &error, &error), 0);
    CHECK_EQ(error, 0);
    CHECK(idr_find(&idr, 0) == &error);
    at = 0;
    CHECK(idr_next(&idr, &at) == &error && at == 0);
    CHECK_EQ(idr_alloc(&idr, &thing, &error), 2);
    CHECK(idr_remove(&idr, 1) && idr_remove(&idr, 2) && idr_remove(&idr, 0) == &error && idr.count == 0);
    CHECK_EQ(idr_alloc(&idr, &thing, &error), 0);
    CHECK_EQ(idr_alloc(&idr, &thing, &error), 1);
    idr_destroy(&idr);
}

struct counted {
    struct fence_cb cb;
    atomic_int calls;
};

static void count_call(struct fence *fence, struct fence_cb *cb)
{
    CHECK(fence_is_signalled(fence));
    atomic_fetch_add(&((struct counted *)cb)->calls, 1);
}

static void *signal_later(void *fence)
{
    usleep(20000);
    fence_signal(fence, -EIO);
    fence_put(fence);
    return NULL;
}

static void fences(void)
{
    struct fence *fence = fence_new();
    struct counted first = {0}, second = {0}, late = {0};
    CHECK(fence_add_callback(fence, &first.cb, count_call));
    CHECK(fence_add_callback(fence, &second.cb, count_call));
    CHECK(fence_remove_callback(fence, &second.cb));
    CHECK(!fence_remove_callback(fence, &second.cb));
    CHECK_EQ(fence_wait(fence, now_ns() + 5000000), -ETIME);
    CHECK_EQ(fence_wait(fence, 0), -ETIME);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, signal_later, fence_get(fence)) == 0);
    CHECK_EQ(fence_wait(fence, FOREVER), 0);
    CHECK_EQ(fence->error, -EIO);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(first.calls, 1);
    CHECK_EQ(second.calls, 0);
    CHECK(!fence_add_callback(fence, &late.cb, count_call));
    CHECK_EQ(late.calls, 0);
    CHECK_EQ(fence_wait(fence, 0), 0);
    fence_put(fence);
    fence = fence_stub();
    CHECK_EQ(fence_wait(fence, 0), 0);
    fence_put(fence);
}

static uint32_t depth(const struct vma *vma)
{
    uint32_t left = vma ? depth(vma->left) : 0, right = vma ? depth(vma->right) : 0;
    return vma ? 1 + (left > right ? left : right) : 0;
}

/* A hundred thousand mappings bound, cut, replaced: logarithmic, and nothing lost. */
static void treap(void)
{
    int fd = open_node(0);
    uint32_t vm_id = make_vm(fd, 0), bo = make_bo(fd, 4 * PAGE, VRAM, WC, 0);
    struct vm *vm = vm_lookup(device_peek(0)->files, vm_id);
    const uint32_t count = 100000;
    struct drm_xe_vm_bind_op *ops = calloc(count, sizeof(*ops));
    for (uint32_t i = 0; i < count; i++)
        ops[i] = (struct drm_xe_vm_bind_op){.obj = bo, .addr = i * 4 * PAGE, .range = 4 * PAGE, .pat_index = PAT_WB};
    for (uint32_t i = 0; i < count; i += 10000)
        CHECK_EQ(bind_array(fd, vm_id, ops + i, 10000), 0);
    CHECK_EQ(vm->num_vmas, count);
    CHECK(depth(vm->root) < 64);
    for (uint32_t i = 0; i < count; i += 100)
        CHECK_EQ(unmap(fd, vm_id, (i * 4 + 1) * PAGE, PAGE), 0);
    CHECK_EQ(vm->num_vmas, count + count / 100);
    CHECK_EQ(vma_count(vm->root), vm->num_vmas);
    uint64_t end = 0, seen = 0;
    for (struct vma *vma = vma_first(vm, 0); vma; vma = vma_next(vm, vma), seen++) {
        CHECK(vma->start >= end && vma->end > vma->start);
        end = vma->end;
    }
    CHECK_EQ(seen, vm->num_vmas);
    CHECK_EQ(vma_split(vm, 3 * PAGE), 0);
    CHECK_EQ(vma_split(vm, 3 * PAGE), 0);
    CHECK_EQ(vm->num_vmas, seen + 1);
    CHECK_EQ(vma_find(vm->root, 3 * PAGE)->offset, 3 * PAGE);
    vm_put(vm);
    free(ops);
    close_node(fd);
    check_nothing_left(0);
}

static void bad_memory(void)
{
    char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char buffer[64] = "bytes";
    const uint64_t hole = (uintptr_t)pages + PAGE, last = (uintptr_t)pages + 2 * PAGE;
    CHECK(munmap(pages + PAGE, PAGE) == 0);
    CHECK(mprotect(pages + 2 * PAGE, PAGE, PROT_READ) == 0);
    CHECK_EQ(copy_from_user(buffer, 0, 0), 0);
    CHECK_EQ(copy_from_user(buffer, 0, 1), -EFAULT);
    CHECK_EQ(copy_from_user(buffer, ~0ull - 3, 8), -EFAULT);
    CHECK_EQ(copy_from_user(buffer, hole - 8, 8), 0);
    CHECK_EQ(copy_from_user(buffer, hole - 8, 9), -EFAULT);
    CHECK_EQ(copy_from_user(buffer, hole + 4, 4), -EFAULT);
    CHECK_EQ(copy_to_user(hole - 3, "abc", 3), 0);
    CHECK(!memcmp(pages + PAGE - 3, "abc", 3));
    CHECK_EQ(copy_to_user(hole - 3, "abcd", 4), -EFAULT);
    CHECK_EQ(copy_to_user(last, buffer, 8), -EFAULT);
    CHECK_EQ(copy_to_user(last, buffer, 3), -EFAULT);
    CHECK_EQ(copy_to_user(0, buffer, 8), -EFAULT);
    CHECK_EQ(store_user_u64(last, 1), -EFAULT);
    CHECK_EQ(store_user_u64(hole - 8, 0x77), 0);
    CHECK_EQ(pages[PAGE - 8], 0x77);
    CHECK_EQ(check_user_range(last, PAGE, 0), 0);
    CHECK_EQ(check_user_range(last, PAGE, 1), -EPERM);
    CHECK_EQ(check_user_range((uintptr_t)pages, 3 * PAGE, 0), -EFAULT);
    CHECK_EQ(check_user_range((uintptr_t)pages, 3 * PAGE, 1), -EFAULT);
    CHECK_EQ(check_user_range((uintptr_t)pages, PAGE, 1), 0);
    munmap(pages, PAGE);
    munmap(pages + 2 * PAGE, PAGE);
}

int main(void)
{
    ids();
    fences();
    treap();
    bad_memory();
    return 0;
}
