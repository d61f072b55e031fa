/* The errnos of the xe ioctls, row by row in the order in which the driver looks, and which of two wrongs wins. */
#include "check.h"

static const uint32_t bad_handle = 12345;

static void gem_create(int fd)
{
    const struct drm_xe_gem_create good = {.size = PAGE, .placement = VRAM, .cpu_caching = WC};
    static const struct {
        int error;
        struct drm_xe_gem_create args;
    } rows[] = {
        {-EINVAL, {.size = PAGE, .placement = VRAM, .cpu_caching = WC, .pad = {0, 0, 1}}},
        {-EINVAL, {.size = PAGE, .placement = VRAM, .cpu_caching = WC, .reserved = {0, 1}}},
        {-EINVAL, {.size = PAGE, .placement = 0, .cpu_caching = WC}},
        {-EINVAL, {.size = PAGE, .placement = 4, .cpu_caching = WC}},
        {-EINVAL, {.size = PAGE, .placement = VRAM, .cpu_caching = WC, .flags = 0x10}},
        {-EINVAL, {.size = PAGE, .placement = VRAM, .cpu_caching = WC, .handle = 1}},
        {-EINVAL, {.size = 0, .placement = VRAM, .cpu_caching = WC}},
        {-EINVAL, {.size = PAGE + 1, .placement = VRAM, .cpu_caching = WC}},
        {-EINVAL,
         {.size = PAGE, .placement = SYSTEM, .cpu_caching = WC, .flags = DRM_XE_GEM_CREATE_FLAG_NEEDS_VISIBLE_VRAM}},
        {-EINVAL, {.size = PAGE, .placement = VRAM}},
        {-EINVAL, {.size = PAGE, .placement = VRAM, .cpu_caching = 3}},
        {-EINVAL, {.size = PAGE, .placement = VRAM, .cpu_caching = WB}},
        {-EINVAL, {.size = PAGE, .placement = VRAM | SYSTEM, .cpu_caching = WB}},
        {-EINVAL, {.size = PAGE, .placement = SYSTEM, .cpu_caching = WB, .flags = DRM_XE_GEM_CREATE_FLAG_SCANOUT}},
        {-ENOENT, {.size = PAGE, .placement = VRAM, .cpu_caching = WC, .vm_id = 99}},
        {-ENOSPC, {.size = 1ull << 50, .placement = VRAM, .cpu_caching = WC}},
        {-ENOSPC, {.size = 1ull << 50, .placement = SYSTEM, .cpu_caching = WB}},
        {-EFAULT, {.size = PAGE, .placement = VRAM, .cpu_caching = WC, .extensions = 8}},
        {-EINVAL, {.size = PAGE, .placement = VRAM, .cpu_caching = WC, .extensions = 8, .flags = 0x10}},
        {-ENOSPC, {.size = 1ull << 50, .placement = VRAM, .cpu_caching = WC, .extensions = 8}},
        {0, {.size = PAGE, .placement = SYSTEM, .cpu_caching = WB}},
        {0, {.size = PAGE, .placement = SYSTEM, .cpu_caching = WC}},
        {0, {.size = PAGE, .placement = VRAM | SYSTEM, .cpu_caching = WC, .flags = 0xf}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct drm_xe_gem_create args = rows[i].args;
        int r = CALL(fd, XE_GEM_CREATE, &args);
        if (r != rows[i].error)
            fprintf(stderr, "row %zu\n", i);
        CHECK_EQ(r, rows[i].error);
        if (!r)
            CHECK_EQ(close_bo(fd, args.handle), 0);
    }
    /* Extensions: unknown name, unknown property, pad, a ring of them. */
    struct drm_xe_ext_set_property ext = {.base.name = 1};
    struct drm_xe_gem_create args = good;
    args.extensions = (uintptr_t)&ext;
    CHECK_EQ(CALL(fd, XE_GEM_CREATE, &args), -EINVAL);
    ext = (struct drm_xe_ext_set_property){.property = 1};
    CHECK_EQ(CALL(fd, XE_GEM_CREATE, &args), -EINVAL);
    ext = (struct drm_xe_ext_set_property){.base.pad = 1};
    CHECK_EQ(CALL(fd, XE_GEM_CREATE, &args), -EINVAL);
    ext = (struct drm_xe_ext_set_property){.value = DRM_XE_PXP_TYPE_HWDRM};
    CHECK_EQ(CALL(fd, XE_GEM_CREATE, &args), -ENODEV);
    ext = (struct drm_xe_ext_set_property){.base.next_extension = (uintptr_t)&ext};
    CHECK_EQ(CALL(fd, XE_GEM_CREATE, &args), -E2BIG);
    ext.base.next_extension = 0;
    CHECK_EQ(CALL(fd, XE_GEM_CREATE, &args), 0);
    CHECK_EQ(args.handle, 1); /* nothing was left of the failures */
    CHECK_EQ(close_bo(fd, 1), 0);
    CHECK_EQ(stats_of(0).objects, 0);
}

static void mmap_offset_rows(int fd)
{
    uint32_t bo = make_bo(fd, 2 * PAGE, VRAM, WC, 0);
    const struct {
        int error;
        struct drm_xe_gem_mmap_offset args;
    } rows[] = {
        {-EINVAL, {.handle = bo, .extensions = 8}},
        {-EINVAL, {.handle = bo, .reserved = {1}}},
        {-EINVAL, {.handle = bo, .flags = 2}},
        {-EINVAL, {.handle = bo, .flags = DRM_XE_MMAP_OFFSET_FLAG_PCI_BARRIER}},
        {-ENOENT, {.handle = bad_handle}},
        {-EINVAL, {.handle = bad_handle, .flags = 2}},
        {0, {.handle = bo, .offset = 77}},
        {0, {.flags = DRM_XE_MMAP_OFFSET_FLAG_PCI_BARRIER}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct drm_xe_gem_mmap_offset args = rows[i].args;
        CHECK_EQ(CALL(fd, XE_GEM_MMAP_OFFSET, &args), rows[i].error);
        if (args.flags == DRM_XE_MMAP_OFFSET_FLAG_PCI_BARRIER && !rows[i].error)
            CHECK_EQ(args.offset, 0x50000);
    }

    const struct xe_ops *ops = xe_mock_ops();
    int64_t offset = (int64_t)mmap_offset(fd, bo);
    CHECK_EQ(offset, mmap_offset(fd, bo));
    CHECK(offset >= 1ll << 32);
    int other = open_node(0);
    const struct {
        int error, fd, prot, flags;
        size_t size;
        int64_t offset;
    } maps[] = {
        {EINVAL, fd, PROT_READ, MAP_SHARED, PAGE, 0},
        {EINVAL, fd, PROT_READ, MAP_SHARED, PAGE, offset + (int64_t)PAGE}, /* only from the start */
        {EINVAL, fd, PROT_READ, MAP_SHARED, 3 * PAGE, offset},
        {EACCES, other, PROT_READ, MAP_SHARED, PAGE, offset},
        {EINVAL, other, PROT_READ, MAP_SHARED, 3 * PAGE, offset},
        {EACCES, other, PROT_READ, MAP_PRIVATE, PAGE, offset},
        {EINVAL, fd, PROT_READ, MAP_PRIVATE, PAGE, offset},
        {EINVAL, fd, PROT_READ, MAP_SHARED, PAGE, 0x50000},
        {EINVAL, fd, PROT_WRITE, MAP_SHARED, 2 * PAGE, 0x50000},
        {EINVAL, fd, PROT_WRITE, MAP_PRIVATE, PAGE, 0x50000},
        {0, fd, PROT_WRITE, MAP_SHARED, PAGE, 0x50000},
        {0, fd, PROT_WRITE, MAP_SHARED, PAGE, offset},
    };
    for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++) {
        void *p = ops->mmap(NULL, maps[i].size, maps[i].prot, maps[i].flags, maps[i].fd, maps[i].offset);
        CHECK_EQ(p == MAP_FAILED ? errno : 0, maps[i].error);
        if (p != MAP_FAILED)
            CHECK(munmap(p, maps[i].size) == 0);
    }
    close_node(other);

    /* A mapping outlives handle and file. */
    volatile int *p = map_cpu(fd, bo, 2 * PAGE);
    p[1024] = 42;
    CHECK_EQ(close_bo(fd, bo), 0);
    CHECK(ops->mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, offset) == MAP_FAILED);
    CHECK_EQ(p[1024], 42);
    CHECK_EQ(p[0], 0);
    CHECK(munmap((void *)p, 2 * PAGE) == 0);
}

static void vm_rows(int fd)
{
    static const struct {
        int error;
        struct drm_xe_vm_create args;
    } rows[] = {
        {-EINVAL, {.extensions = 8}},
        {-EINVAL, {.reserved = {0, 1}}},
        {-EINVAL, {.flags = 0x10}},
        {-EINVAL, {.flags = 4}},
        {-EINVAL, {.flags = 5}},
        {-EINVAL, {.flags = 8}},
        {-EINVAL, {.flags = 0xa}},
        {0, {.flags = 0, .vm_id = 99}},
        {0, {.flags = 1}},
        {0, {.flags = 2}},
        {0, {.flags = 3}},
        {0, {.flags = 6}},
        {0, {.flags = 7}},
        {0, {.flags = 0xe}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct drm_xe_vm_create args = rows[i].args;
        CHECK_EQ(CALL(fd, XE_VM_CREATE, &args), rows[i].error);
        if (!rows[i].error) {
            CHECK_EQ(args.vm_id, 1);
            destroy_vm(fd, 1);
        }
    }
    uint32_t vm = make_vm(fd, 0);
    struct drm_xe_vm_destroy args = {.vm_id = vm, .pad = 1};
    CHECK_EQ(CALL(fd, XE_VM_DESTROY, &args), -EINVAL);
    args = (struct drm_xe_vm_destroy){.vm_id = 77, .reserved = {1}};
    CHECK_EQ(CALL(fd, XE_VM_DESTROY, &args), -EINVAL);
    args = (struct drm_xe_vm_destroy){.vm_id = 77};
    CHECK_EQ(CALL(fd, XE_VM_DESTROY, &args), -ENOENT);
    destroy_vm(fd, vm);
    args.vm_id = vm;
    CHECK_EQ(CALL(fd, XE_VM_DESTROY, &args), -ENOENT);
}

static void bind_rows(int fd)
{
    uint32_t vm = make_vm(fd, 0), other_vm = make_vm(fd, 0), fault_vm = make_vm(fd, 6);
    uint32_t wb = make_bo(fd, 4 * PAGE, SYSTEM, WB, 0), wc = make_bo(fd, 4 * PAGE, VRAM, WC, 0);
    uint32_t mine = make_bo(fd, PAGE, SYSTEM, WB, vm);
    struct drm_xe_gem_create plain_args = {
        .size = PAGE, .placement = SYSTEM, .cpu_caching = WC, .flags = DRM_XE_GEM_CREATE_FLAG_NO_COMPRESSION};
    CHECK_EQ(CALL(fd, XE_GEM_CREATE, &plain_args), 0);
    uint32_t plain = plain_args.handle;
    uint64_t memory = (uintptr_t)mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t read_only = (uintptr_t)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t of_object = (uintptr_t)map_cpu(fd, wb, 4 * PAGE);
    enum { MAP, UNMAP, USERPTR, ALL, PREFETCH };
    const uint64_t top = 1ull << 48, va = 0x100000;
    const uint32_t null = DRM_XE_VM_BIND_FLAG_NULL, mirror = DRM_XE_VM_BIND_FLAG_CPU_ADDR_MIRROR;
    const struct {
        int error;
        uint32_t vm;
        struct drm_xe_vm_bind_op op;
    } rows[] = {
        {-EINVAL, 99, {.obj = bad_handle}},
        {-EINVAL, vm, {.op = MAP, .addr = va, .range = PAGE, .flags = mirror}}, /* not a fault VM */
        {-EINVAL, vm, {.op = MAP, .obj = wc, .addr = va, .range = PAGE, .pat_index = 28}},
        {-EINVAL, vm, {.op = UNMAP, .addr = va, .range = PAGE, .pat_index = PAT_RESERVED}},
        {-EINVAL, vm, {.op = 5, .addr = va, .range = PAGE}},
        {-EINVAL, vm, {.op = MAP, .obj = wc, .addr = va, .range = PAGE, .flags = 0x100}},
        {-EINVAL, vm, {.op = MAP, .obj = wc, .addr = va, .range = PAGE, .flags = null}},
        {-EINVAL, vm, {.op = MAP, .obj_offset = PAGE, .addr = va, .range = PAGE, .flags = null}},
        {-EINVAL, vm, {.op = UNMAP, .addr = va, .range = PAGE, .flags = null}},
        {-EINVAL, vm, {.op = PREFETCH, .addr = va, .range = PAGE, .flags = null}},
        {-EINVAL, vm, {.op = MAP, .addr = va, .range = PAGE}},
        {-EINVAL, vm, {.op = ALL}},
        {-EINVAL, vm, {.op = ALL, .obj = wb, .addr = PAGE, .pat_index = PAT_WB}},
        {-EINVAL, vm, {.op = ALL, .obj = wb, .range = PAGE, .pat_index = PAT_WB}},
        {-EINVAL, vm, {.op = USERPTR, .obj = wb, .userptr = memory, .addr = va, .range = PAGE, .pat_index = PAT_WB}},
        {-EINVAL, vm, {.op = USERPTR, .userptr = memory, .addr = va, .range = PAGE, .pat_index = PAT_NONE}},
        {-EINVAL, vm, {.op = USERPTR, .userptr = memory, .addr = va, .range = PAGE, .pat_index = PAT_COMPRESSED}},
        {-EINVAL, vm, {.op = UNMAP, .obj = wb, .addr = va, .range = PAGE}},
        {-EINVAL, vm, {.op = PREFETCH, .obj = wb, .addr = va, .range = PAGE}},
        {-EINVAL, vm, {.op = MAP, .obj = wc, .addr = va, .range = PAGE, .prefetch_mem_region_instance = 1}},
        {-EINVAL, vm, {.op = PREFETCH, .addr = va, .range = PAGE, .prefetch_mem_region_instance = 2}},
        {-EINVAL,
         vm,
         {.op = MAP, .obj = wc, .addr = va, .range = PAGE, .flags = DRM_XE_VM_BIND_FLAG_MADVISE_AUTORESET}},
        {-EINVAL, vm, {.op = MAP, .obj = wc, .obj_offset = 1, .addr = va, .range = PAGE}},
        {-EINVAL, vm, {.op = MAP, .obj = wc, .addr = va + 8, .range = PAGE}},
        {-EINVAL, vm, {.op = MAP, .obj = wc, .addr = va, .range = PAGE + 8}},
        {-EINVAL, vm, {.op = MAP, .obj = wc, .addr = va}},
        {-EINVAL,
         vm,
         {.op = MAP,
          .obj = wc,
          .addr = va,
          .range = PAGE,
          .pat_index = PAT_COMPRESSED,
          .flags = DRM_XE_VM_BIND_FLAG_DECOMPRESS}},
        {-EINVAL, vm, {.op = MAP, .obj = bad_handle, .addr = top, .range = PAGE}}, /* the range beats the handle */
        {-EINVAL, vm, {.op = UNMAP, .addr = 0xffff800000000000, .range = PAGE}},   /* sign-extended: as it stands */
        {-EINVAL, vm, {.op = UNMAP, .addr = PAGE, .range = top}},
        {-ENOENT, vm, {.op = MAP, .obj = bad_handle, .addr = va, .range = PAGE}},
        {-EINVAL, vm, {.op = MAP, .obj = plain, .addr = va, .range = PAGE, .pat_index = PAT_COMPRESSED}},
        {-EINVAL, vm, {.op = MAP, .obj = wc, .addr = va, .range = 5 * PAGE}},
        {-EINVAL, vm, {.op = MAP, .obj = wc, .obj_offset = 2 * PAGE, .addr = va, .range = 3 * PAGE}},
        {-EINVAL, vm, {.op = MAP, .obj = wb, .addr = va, .range = PAGE, .pat_index = PAT_NONE}},
        {-EINVAL, vm, {.op = ALL, .obj = wb}}, /* pat 0 is not coherent here, and UNMAP_ALL is checked */
        {-EFAULT, vm, {.op = USERPTR, .userptr = PAGE, .addr = va, .range = PAGE, .pat_index = PAT_WB}},
        {-EFAULT, vm, {.op = USERPTR, .userptr = of_object, .addr = va, .range = PAGE, .pat_index = PAT_WB}},
        {-EPERM, vm, {.op = USERPTR, .userptr = read_only, .addr = va, .range = PAGE, .pat_index = PAT_WB}},
        {-EOVERFLOW, vm, {.op = USERPTR, .userptr = ~0ull << 12, .addr = va, .range = 2 * PAGE, .pat_index = PAT_WB}},

        {0,
         vm,
         {.op = USERPTR,
          .userptr = read_only,
          .addr = va,
          .range = PAGE,
          .pat_index = PAT_WB,
          .flags = DRM_XE_VM_BIND_FLAG_READONLY}},
        {0, vm, {.op = USERPTR, .userptr = memory, .addr = va, .range = 2 * PAGE, .pat_index = PAT_WB}},
        {0, vm, {.op = MAP, .obj = wc, .addr = 0, .range = PAGE}}, /* address 0 is an address */
        {0, vm, {.op = MAP, .obj = wc, .addr = top - PAGE, .range = PAGE, .pat_index = PAT_NONE}},
        {0,
         vm,
         {.op = MAP,
          .obj = wb,
          .addr = va,
          .range = PAGE,
          .pat_index = PAT_WB,
          .pad = 7,
          .pad2 = 7,
          .reserved = {1, 2, 3}}},
        {0, vm, {.op = MAP, .obj = mine, .addr = va, .range = PAGE, .pat_index = PAT_WB, .extensions = 8}},
        {0, vm, {.op = MAP, .addr = va, .range = 1ull << 40, .flags = null | DRM_XE_VM_BIND_FLAG_READONLY}},
        {0, vm, {.op = UNMAP, .addr = va, .range = PAGE, .flags = 0x1b, .obj_offset = PAGE}},
        {0, vm, {.op = UNMAP, .addr = 0x7000000, .range = PAGE}}, /* a hole */
        {0, vm, {.op = ALL, .obj = wb, .pat_index = PAT_WB}},
        {0, other_vm, {.op = ALL, .obj = wb, .pat_index = PAT_WB}}, /* not bound here */
        /* The header forbids it, the driver does not look. */
        {0, other_vm, {.op = MAP, .obj = mine, .addr = va, .range = PAGE, .pat_index = PAT_WB}},
        {0, vm, {.op = PREFETCH, .addr = 0x7000000, .range = PAGE, .prefetch_mem_region_instance = 1}},
        {0, vm, {.op = UNMAP, .range = top}},
        {0, fault_vm, {.op = MAP, .addr = va, .range = PAGE, .flags = null | mirror}},
        {0, fault_vm, {.op = MAP, .addr = va, .range = PAGE, .flags = mirror}},
        {0, fault_vm, {.op = MAP, .addr = va, .range = PAGE, .flags = mirror | DRM_XE_VM_BIND_FLAG_MADVISE_AUTORESET}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        int r = bind_op(fd, rows[i].vm, rows[i].op);
        if (r != rows[i].error)
            fprintf(stderr, "row %zu\n", i);
        CHECK_EQ(r, rows[i].error);
    }

    /* The header of the call, in its order. */
    struct drm_xe_vm_bind_op good = {.obj = wc, .addr = va, .range = PAGE};
    struct drm_xe_sync sync = {.type = 99};
    const struct {
        int error;
        struct drm_xe_vm_bind args;
    } headers[] = {
        {-EINVAL, {.vm_id = vm, .num_binds = 1, .bind = good, .pad = 1}},
        {-EINVAL, {.vm_id = vm, .num_binds = 1, .bind = good, .pad2 = 1}},
        {-EINVAL, {.vm_id = vm, .num_binds = 1, .bind = good, .reserved = {0, 1}}},
        {-EINVAL, {.vm_id = vm, .num_binds = 1, .bind = good, .extensions = 8}},
        {-EINVAL, {.vm_id = vm, .num_binds = 1, .bind = good, .num_syncs = 1025}},
        {-ENOBUFS, {.vm_id = vm, .num_binds = 26843546, .vector_of_binds = 8}},
        {-EFAULT, {.vm_id = vm, .num_binds = 2, .vector_of_binds = 8}},
        {-ENOENT, {.vm_id = vm, .num_binds = 1, .bind = good, .exec_queue_id = 7}},
        {-EFAULT, {.vm_id = vm, .num_binds = 1, .bind = good, .num_syncs = 1, .syncs = 8}},
        {-EINVAL, {.vm_id = vm, .num_binds = 1, .bind = good, .num_syncs = 1, .syncs = (uintptr_t)&sync}},
        {-ENOENT,
         {.vm_id = vm,
          .num_binds = 1,
          .bind = {.obj = bad_handle, .addr = va, .range = PAGE},
          .num_syncs = 1,
          .syncs = 8}},
        {-ENOENT,
         {.vm_id = vm, .num_binds = 1, .bind = {.obj = bad_handle, .addr = va, .range = PAGE}, .exec_queue_id = 7}},
        {0, {.vm_id = vm}},
        {-EINVAL, {.vm_id = vm, .num_syncs = 1, .syncs = (uintptr_t)&sync}},
    };
    for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
        struct drm_xe_vm_bind args = headers[i].args;
        int r = CALL(fd, XE_VM_BIND, &args);
        if (r != headers[i].error)
            fprintf(stderr, "header %zu\n", i);
        CHECK_EQ(r, headers[i].error);
    }
    /* A wrong flag in the last operation beats a wrong handle in the first. */
    struct drm_xe_vm_bind_op ops[2] = {{.obj = bad_handle, .addr = va, .range = PAGE},
                                       {.obj = wc, .addr = va, .range = PAGE, .flags = 0x400}};
    CHECK_EQ(bind_array(fd, vm, ops, 2), -EINVAL);
    ops[1].flags = 0;
    CHECK_EQ(bind_array(fd, vm, ops, 2), -ENOENT);
    destroy_vm(fd, vm);
    destroy_vm(fd, other_vm);
    destroy_vm(fd, fault_vm);
}

static void sync_rows(int fd)
{
    uint32_t vm = make_vm(fd, 0), lr = make_vm(fd, 2), bo = make_bo(fd, PAGE, VRAM, WC, 0);
    uint64_t fence[2] = {0};
    const uint64_t here = (uintptr_t)fence;
    const struct {
        int error;
        uint32_t vm, num_binds;
        struct drm_xe_sync sync;
    } rows[] = {
        {-EINVAL, vm, 1, {.type = 2, .flags = 3, .addr = here}},
        {-EINVAL, vm, 1, {.type = 2, .flags = 1, .addr = here, .reserved = {0, 1}}},
        {-EOPNOTSUPP, vm, 0, {.type = 2, .flags = 1, .addr = here}},
        {-EOPNOTSUPP, vm, 1, {.type = 2, .flags = 0, .addr = here + 4}},
        {-EINVAL, vm, 1, {.type = 2, .flags = 1, .addr = here + 4}},
        {-EFAULT, vm, 1, {.type = 2, .flags = 1, .addr = 8}},
        {-EINVAL, vm, 1, {.type = 3, .flags = 1}},
        {-EOPNOTSUPP, lr, 1, {.type = 0, .flags = 1, .handle = 77}},
        {-EOPNOTSUPP, lr, 1, {.type = 1, .flags = 1, .handle = 77}},
        {-EINVAL, vm, 1, {.type = 0, .flags = 1, .addr = 1ull << 32 | 77}},
        {-EINVAL, vm, 1, {.type = 1, .flags = 1, .handle = 77}}, /* point 0 */
        {-ENOENT, vm, 1, {.type = 0, .flags = 1, .handle = 77}},
        {-ENOENT, vm, 1, {.type = 1, .flags = 1, .handle = 77, .timeline_value = 1}},
        {0, vm, 1, {.extensions = 8, .type = 2, .flags = 1, .addr = here, .timeline_value = 0x1122334455667788}},
        {0, lr, 1, {.type = 2, .flags = 1, .addr = here, .timeline_value = 5}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct drm_xe_sync sync = rows[i].sync;
        struct drm_xe_vm_bind args = {.vm_id = rows[i].vm,
                                      .num_binds = rows[i].num_binds,
                                      .bind = {.obj = bo, .addr = i * PAGE, .range = PAGE},
                                      .num_syncs = 1,
                                      .syncs = (uintptr_t)&sync};
        fence[0] = 0;
        int r = CALL(fd, XE_VM_BIND, &args);
        if (r != rows[i].error)
            fprintf(stderr, "sync %zu\n", i);
        CHECK_EQ(r, rows[i].error);
        CHECK_EQ(fence[0], r ? 0 : (long long)sync.timeline_value);
        CHECK_EQ(fence[1], 0);
    }
    struct drm_xe_sync two[2] = {{.type = 2, .flags = 1, .addr = here}, {.type = 2, .flags = 1, .addr = here + 8}};
    struct drm_xe_vm_bind args = {
        .vm_id = vm, .num_binds = 1, .bind = {.obj = bo, .range = PAGE}, .num_syncs = 2, .syncs = (uintptr_t)two};
    CHECK_EQ(CALL(fd, XE_VM_BIND, &args), -EINVAL);
    destroy_vm(fd, vm);
    destroy_vm(fd, lr);
    CHECK_EQ(close_bo(fd, bo), 0);
}

static void wait_rows(int fd)
{
    uint64_t word[2] = {0x1234, 0};
    const uint64_t here = (uintptr_t)word;
    const struct {
        int error;
        struct drm_xe_wait_user_fence args;
    } rows[] = {
        {-EINVAL, {.addr = here, .extensions = 8}},
        {-EINVAL, {.addr = here, .pad = 1}},
        {-EINVAL, {.addr = here, .pad2 = 1}},
        {-EINVAL, {.addr = here, .reserved = {0, 1}}},
        {-EINVAL, {.addr = here, .flags = 2}},
        {-EINVAL, {.addr = here, .op = 6}},
        {-EINVAL, {.addr = here + 4}},
        {-EINVAL, {.addr = 4, .exec_queue_id = 9}},
        {-ENOENT, {.addr = 8, .exec_queue_id = 9}},
        {-EFAULT, {.addr = 8}},
        {0, {.addr = here, .op = 0, .value = 0x34, .mask = 0xff}},
        {-ETIME, {.addr = here, .op = 1, .value = 0x34, .mask = 0xff}},
        {0, {.addr = here, .op = 2, .value = 0x1233, .mask = ~0ull}},
        {-ETIME, {.addr = here, .op = 2, .value = 0x1234, .mask = ~0ull}},
        {0, {.addr = here, .op = 3, .value = 0x1234, .mask = ~0ull}},
        {0, {.addr = here, .op = 4, .value = ~0ull, .mask = ~0ull}}, /* unsigned */
        {0, {.addr = here, .op = 5, .value = 0x1234, .mask = ~0ull, .timeout = -1}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct drm_xe_wait_user_fence args = rows[i].args;
        int r = CALL(fd, XE_WAIT_USER_FENCE, &args);
        if (r != rows[i].error)
            fprintf(stderr, "wait %zu\n", i);
        CHECK_EQ(r, rows[i].error);
    }
    struct drm_xe_wait_user_fence late = {.addr = here, .value = 1, .mask = ~0ull, .timeout = 20000000};
    CHECK_EQ(CALL(fd, XE_WAIT_USER_FENCE, &late), -ETIME);
    CHECK_EQ(late.timeout, 0); /* written back although it failed */
    late = (struct drm_xe_wait_user_fence){.addr = here, .value = 0x1234, .mask = ~0ull, .timeout = 1000000000};
    CHECK_EQ(CALL(fd, XE_WAIT_USER_FENCE, &late), 0);
    CHECK(late.timeout > 500000000 && late.timeout < 1000000000);
    late.timeout = -1;
    CHECK_EQ(CALL(fd, XE_WAIT_USER_FENCE, &late), 0);
    CHECK(late.timeout > INT64_MAX / 2);
    late = (struct drm_xe_wait_user_fence){
        .addr = here, .value = 1, .mask = ~0ull, .timeout = 1000, .flags = DRM_XE_UFENCE_WAIT_FLAG_ABSTIME};
    CHECK_EQ(CALL(fd, XE_WAIT_USER_FENCE, &late), -ETIME);
    CHECK_EQ(late.timeout, 1000); /* absolute: untouched */
}

static void query_rows(int fd)
{
    static const struct {
        uint32_t query, size;
        int error;
    } rows[] = {
        {DRM_XE_DEVICE_QUERY_ENGINES, 8 + 32 * 7, 0}, {DRM_XE_DEVICE_QUERY_MEM_REGIONS, 8 + 88 * 2, 0},
        {DRM_XE_DEVICE_QUERY_CONFIG, 48, 0},          {DRM_XE_DEVICE_QUERY_GT_LIST, 8 + 96 * 2, 0},
        {DRM_XE_DEVICE_QUERY_HWCONFIG, 180, 0},       {DRM_XE_DEVICE_QUERY_GT_TOPOLOGY, 96, 0},
        {DRM_XE_DEVICE_QUERY_ENGINE_CYCLES, 40, 0},   {DRM_XE_DEVICE_QUERY_UC_FW_VERSION, 32, 0},
        {DRM_XE_DEVICE_QUERY_OA_UNITS, 16, 0},        {DRM_XE_DEVICE_QUERY_PXP_STATUS, 8, -ENODEV},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct drm_xe_device_query args = {.query = rows[i].query};
        CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), 0);
        CHECK_EQ(args.size, rows[i].size);
        args.size++;
        CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), -EINVAL);
        char answer[512] = "";
        args.size = rows[i].size;
        args.data = (uintptr_t)answer;
        CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), rows[i].error);
        args.data = 8;
        int fault = rows[i].error                                      ? rows[i].error
                    : rows[i].query == DRM_XE_DEVICE_QUERY_MEM_REGIONS ? -ENOSPC
                                                                       : -EFAULT;
        CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), fault);
    }
    struct drm_xe_device_query args = {.query = DRM_XE_DEVICE_QUERY_EU_STALL};
    CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), -ENODEV);
    args.query = 11;
    CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), -EINVAL);
    args = (struct drm_xe_device_query){.extensions = 8};
    CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), -EINVAL);
    args = (struct drm_xe_device_query){.reserved = {0, 1}};
    CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), -EINVAL);

    struct drm_xe_query_engine_cycles cycles = {.clockid = 77};
    args = (struct drm_xe_device_query){
        .query = DRM_XE_DEVICE_QUERY_ENGINE_CYCLES, .size = 40, .data = (uintptr_t)&cycles};
    CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), -EINVAL);
    cycles = (struct drm_xe_query_engine_cycles){.clockid = 1, .eci = {.engine_class = 1, .engine_instance = 3}};
    CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), -EINVAL);
    cycles.eci.engine_instance = 0;
    CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), 0);
    CHECK(cycles.width == 64 && cycles.engine_cycles && cycles.cpu_timestamp);
    struct drm_xe_query_uc_fw_version fw = {.uc_type = 2};
    args = (struct drm_xe_device_query){.query = DRM_XE_DEVICE_QUERY_UC_FW_VERSION, .size = 32, .data = (uintptr_t)&fw};
    CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), -EINVAL);
    fw = (struct drm_xe_query_uc_fw_version){.pad2 = 1};
    CHECK_EQ(CALL(fd, XE_DEVICE_QUERY, &args), -EINVAL);
}

static void attrs_rows(int fd)
{
    uint32_t vm = make_vm(fd, 0);
    struct drm_xe_mem_range_attr attrs[4];
    const uint64_t vector = (uintptr_t)attrs;
    struct drm_xe_vm_bind_op null = {.addr = 4 * PAGE, .range = 4 * PAGE, .flags = DRM_XE_VM_BIND_FLAG_NULL};
    CHECK_EQ(bind_op(fd, vm, null), 0);
    CHECK_EQ(unmap(fd, vm, 5 * PAGE, PAGE), 0);
    const struct {
        int error;
        struct drm_xe_vm_query_mem_range_attr args;
        uint32_t found;
    } rows[] = {
        {-EINVAL, {.vm_id = 99, .range = 1}, 0},
        {-EINVAL, {.vm_id = vm, .vector_of_mem_attr = vector}, 0},
        {-EINVAL, {.vm_id = vm, .sizeof_mem_range_attr = 64}, 0},
        {-EINVAL, {.vm_id = vm, .num_mem_ranges = 1, .sizeof_mem_range_attr = 64}, 0},
        {-EINVAL, {.vm_id = vm, .num_mem_ranges = 1, .sizeof_mem_range_attr = 32, .vector_of_mem_attr = vector}, 0},
        {0, {.vm_id = vm, .range = 1ull << 48}, 2},
        {0, {.vm_id = vm, .start = 5 * PAGE, .range = PAGE}, 0},
        {-ENOSPC,
         {.vm_id = vm,
          .range = 1ull << 48,
          .num_mem_ranges = 1,
          .sizeof_mem_range_attr = 64,
          .vector_of_mem_attr = vector},
         1},
        {-EFAULT,
         {.vm_id = vm, .range = 1ull << 48, .num_mem_ranges = 4, .sizeof_mem_range_attr = 64, .vector_of_mem_attr = 8},
         4},
        {0,
         {.vm_id = vm,
          .range = 1ull << 48,
          .num_mem_ranges = 4,
          .sizeof_mem_range_attr = 64,
          .vector_of_mem_attr = vector,
          .extensions = 8},
         2},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct drm_xe_vm_query_mem_range_attr args = rows[i].args;
        CHECK_EQ(CALL(fd, XE_VM_QUERY_MEM_RANGE_ATTRS, &args), rows[i].error);
        if (!rows[i].error)
            CHECK_EQ(args.num_mem_ranges, rows[i].found);
    }
    CHECK(attrs[0].start == 4 * PAGE && attrs[0].end == 5 * PAGE && attrs[1].start == 6 * PAGE &&
          attrs[1].end == 8 * PAGE);
    destroy_vm(fd, vm);
}

int main(void)
{
    int fd = open_node(0);
    gem_create(fd);
    mmap_offset_rows(fd);
    vm_rows(fd);
    bind_rows(fd);
    sync_rows(fd);
    wait_rows(fd);
    query_rows(fd);
    attrs_rows(fd);
    close_node(fd);
    check_nothing_left(0);
    return 0;
}
