/* VM_BIND against a model: a dictionary of pages. Random arrays of every operation; after each, what
   VM_QUERY_MEM_RANGE_ATTRS lists and what the GPU would read are compared page by page. Bytes of an object say which
   page of which object they are. */
#include "check.h"
#include "core.h"

#define NUM_PAGES 96
#define NUM_BOS 4
#define BO_PAGES 24
#define BASE 0x40000000ull

struct page {
    enum { HOLE, BO, NULL_PAGE, USERPTR } kind;
    uint32_t bo, page; /* of the object; of the user memory */
    bool read_only;
    uint16_t pat;
    bool starts; /* a mapping begins here */
};

static struct page model[NUM_PAGES];
static uint32_t bos[NUM_BOS];
static uint64_t *user_memory;

static uint32_t state = 1;

static uint32_t rnd(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % below;
}

static uint64_t tag(uint32_t bo, uint32_t page)
{
    return (uint64_t)(bo + 1) << 32 | (page + 1);
}

static void model_clear(struct page *pages, uint32_t first, uint32_t count)
{
    memset(pages + first, 0, count * sizeof(*pages));
    if (first + count < NUM_PAGES && pages[first + count].kind != HOLE)
        pages[first + count].starts = true; /* a remainder is a mapping of its own */
}

static void model_apply(struct page *pages, const struct drm_xe_vm_bind_op *op)
{
    uint32_t first = (uint32_t)((op->addr - BASE) / PAGE), count = (uint32_t)(op->range / PAGE);
    switch (op->op) {
    case DRM_XE_VM_BIND_OP_UNMAP_ALL:
        for (uint32_t i = 0; i < NUM_PAGES; i++) {
            if (pages[i].kind == BO && bos[pages[i].bo] == op->obj)
                pages[i] = (struct page){0};
        }
        return;
    case DRM_XE_VM_BIND_OP_UNMAP:
        model_clear(pages, first, count);
        return;
    case DRM_XE_VM_BIND_OP_PREFETCH:
        return;
    default:
        model_clear(pages, first, count);
        for (uint32_t i = 0; i < count; i++) {
            struct page *page = &pages[first + i];
            *page = (struct page){
                .read_only = op->flags & DRM_XE_VM_BIND_FLAG_READONLY, .pat = op->pat_index, .starts = !i};
            if (op->op == DRM_XE_VM_BIND_OP_MAP_USERPTR) {
                page->kind = USERPTR;
                page->page = (uint32_t)((op->userptr - (uintptr_t)user_memory) / PAGE) + i;
            } else if (op->flags & DRM_XE_VM_BIND_FLAG_NULL) {
                page->kind = NULL_PAGE;
            } else {
                page->kind = BO;
                for (page->bo = 0; bos[page->bo] != op->obj;)
                    page->bo++;
                page->page = (uint32_t)(op->obj_offset / PAGE) + i;
            }
        }
    }
}

static struct drm_xe_vm_bind_op random_op(void)
{
    static const uint16_t pats[] = {1, 2, 4, 5};
    uint32_t count = 1 + rnd(BO_PAGES), first = rnd(NUM_PAGES - count + 1);
    struct drm_xe_vm_bind_op op = {
        .addr = BASE + first * PAGE,
        .range = count * PAGE,
        .pat_index = pats[rnd(4)],
        .flags = rnd(3) ? 0 : DRM_XE_VM_BIND_FLAG_READONLY,
    };
    switch (rnd(12)) {
    case 0:
        op.op = DRM_XE_VM_BIND_OP_UNMAP_ALL;
        op.obj = bos[rnd(NUM_BOS)];
        op.addr = op.range = 0;
        break;
    case 1:
    case 2:
    case 3:
        op.op = DRM_XE_VM_BIND_OP_UNMAP;
        break;
    case 4:
        op.flags |= DRM_XE_VM_BIND_FLAG_NULL;
        break;
    case 5:
        op.op = DRM_XE_VM_BIND_OP_MAP_USERPTR;
        op.userptr = (uintptr_t)user_memory + rnd(NUM_PAGES - count + 1) * PAGE;
        break;
    case 6:
        op.op = DRM_XE_VM_BIND_OP_PREFETCH;
        break;
    default:
        op.obj = bos[rnd(NUM_BOS)];
        op.obj_offset = rnd(BO_PAGES - count + 1) * PAGE;
    }
    return op;
}

static void compare_layout(int fd, uint32_t vm)
{
    static struct drm_xe_mem_range_attr attrs[NUM_PAGES];
    struct drm_xe_vm_query_mem_range_attr args = {.vm_id = vm,
                                                  .start = BASE,
                                                  .range = NUM_PAGES * PAGE,
                                                  .num_mem_ranges = NUM_PAGES,
                                                  .sizeof_mem_range_attr = 64,
                                                  .vector_of_mem_attr = (uintptr_t)attrs};
    CHECK_EQ(CALL(fd, XE_VM_QUERY_MEM_RANGE_ATTRS, &args), 0);
    uint32_t entry = 0;
    for (uint32_t i = 0; i < NUM_PAGES;) {
        if (model[i].kind == HOLE) {
            i++;
            continue;
        }
        CHECK(model[i].starts);
        CHECK(entry < args.num_mem_ranges);
        CHECK_EQ(attrs[entry].start, BASE + i * PAGE);
        CHECK_EQ(attrs[entry].pat_index.val, model[i].pat);
        do {
            i++;
        } while (i < NUM_PAGES && model[i].kind != HOLE && !model[i].starts);
        CHECK_EQ(attrs[entry].end, BASE + i * PAGE);
        entry++;
    }
    CHECK_EQ(entry, args.num_mem_ranges);
    CHECK_EQ(stats_of(0).mappings, entry); /* nothing replaced lingers */
}

static void compare_pages(struct vm *vm)
{
    for (uint32_t i = 0; i < NUM_PAGES; i++) {
        uint64_t word = 99, at = 0, va = BASE + i * PAGE;
        int r = vm_read(vm, va + 8, &word, 8, &at);
        const struct page *page = &model[i];
        if (page->kind == HOLE) {
            CHECK_EQ(r, -EFAULT);
            CHECK_EQ(at, va + 8);
            continue;
        }
        CHECK_EQ(r, 0);
        CHECK_EQ(word, page->kind == NULL_PAGE ? 0 : tag(page->kind == BO ? page->bo : NUM_BOS, page->page));
        CHECK_EQ(vm_write(vm, va + 8, &word, 8, &at), page->read_only ? -EPERM : 0);
    }
}

int main(int argc, char **argv)
{
    unsigned steps = argc > 1 ? (unsigned)atoi(argv[1]) : 4000;
    int fd = open_node(0);
    uint32_t vm_id = make_vm(fd, 0);
    for (uint32_t i = 0; i < NUM_BOS; i++) {
        bos[i] = make_bo(fd, BO_PAGES * PAGE, SYSTEM, i & 1 ? WC : WB, 0);
        uint64_t *p = map_cpu(fd, bos[i], BO_PAGES * PAGE);
        for (uint32_t page = 0; page < BO_PAGES; page++)
            p[page * 512 + 1] = tag(i, page);
        munmap(p, BO_PAGES * PAGE);
    }
    user_memory = mmap(NULL, NUM_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint32_t page = 0; page < NUM_PAGES; page++)
        user_memory[page * 512 + 1] = tag(NUM_BOS, page);

    /* The device's own view of the VM. */
    struct device *dev = device_peek(0);
    struct vm *vm = vm_lookup(dev->files, vm_id);
    for (unsigned step = 0; step < steps; step++) {
        struct drm_xe_vm_bind_op ops[8];
        uint32_t count = 1 + rnd(8);
        struct page wanted[NUM_PAGES];
        memcpy(wanted, model, sizeof(model));
        for (uint32_t i = 0; i < count; i++) {
            ops[i] = random_op();
            model_apply(wanted, &ops[i]);
        }
        bool bad = !rnd(4);
        if (bad) { /* fails only when the operations before it were done: user memory that is not there */
            ops[count - 1] = (struct drm_xe_vm_bind_op){
                .op = DRM_XE_VM_BIND_OP_MAP_USERPTR, .addr = BASE, .range = PAGE, .userptr = PAGE, .pat_index = PAT_WB};
        }
        CHECK_EQ(bind_array(fd, vm_id, ops, count), bad ? -EFAULT : 0);
        if (!bad)
            memcpy(model, wanted, sizeof(model));
        compare_layout(fd, vm_id);
        if (step % 16 == 0)
            compare_pages(vm);
    }
    CHECK_EQ(unmap(fd, vm_id, 0, 1ull << 48), 0);
    CHECK_EQ(stats_of(0).mappings, 0);
    vm_put(vm);
    munmap(user_memory, NUM_PAGES * PAGE);
    close_node(fd);
    check_nothing_left(0);
    return 0;
}
