/* What EXEC, EXEC_QUEUE_CREATE, DESTROY and the properties refuse, and with which errno. */
#include "device_under_test.h"

enum { BATCH = 0x100000, DATA = 0x200000 };

int main(void)
{
    int fd = test_open(0);
    uint32_t vm = test_vm(fd, 0), queue = test_queue(fd, vm), bind, after = test_syncobj(fd, 0);
    CHECK_EQUAL(test_queue_of(fd, vm, DRM_XE_ENGINE_CLASS_VM_BIND, &bind), 0);
    struct drm_xe_sync two[] = {USER_FENCE(DATA, 1), USER_FENCE(DATA + 8, 1)};
    struct drm_xe_exec exec = {.exec_queue_id = queue, .num_batch_buffer = 1, .address = BATCH};
#define EXEC_WITH(field, bad, error)                                                                                   \
    do {                                                                                                               \
        struct drm_xe_exec changed = exec;                                                                             \
        changed.field = bad;                                                                                           \
        CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC, &changed), error);                                            \
    } while (0)
    EXEC_WITH(extensions, 1, -EINVAL);
    EXEC_WITH(pad[2], 1, -EINVAL);
    EXEC_WITH(reserved[1], 1, -EINVAL);
    EXEC_WITH(num_syncs, 1025, -EINVAL);
    EXEC_WITH(exec_queue_id, 99, -ENOENT);
    EXEC_WITH(exec_queue_id, bind, -EINVAL);
    EXEC_WITH(num_batch_buffer, 2, -EINVAL);
    EXEC_WITH(num_syncs, 1, -EFAULT);
    exec.syncs = (uint64_t)two;
    EXEC_WITH(num_syncs, 2, -EINVAL);
    two[0].flags = 0;
    EXEC_WITH(num_syncs, 1, -EOPNOTSUPP);
    two[0] = USER_FENCE(DATA + 4, 1);
    EXEC_WITH(num_syncs, 1, -EINVAL);
    two[0] = SIGNAL_SYNCOBJ(999);
    EXEC_WITH(num_syncs, 1, -ENOENT);
    two[0] = SIGNAL_POINT(after, 0);
    EXEC_WITH(num_syncs, 1, -EINVAL);

    struct drm_xe_engine_class_instance engines[2] = {{.engine_class = DRM_XE_ENGINE_CLASS_COPY}};
    struct drm_xe_exec_queue_create create = {
        .width = 1, .num_placements = 1, .vm_id = vm, .instances = (uint64_t)engines};
#define CREATE_WITH(field, bad, error)                                                                                 \
    do {                                                                                                               \
        struct drm_xe_exec_queue_create changed = create;                                                              \
        changed.field = bad;                                                                                           \
        CHECK_EQUAL(xe_mock_ioctl(fd, DRM_IOCTL_XE_EXEC_QUEUE_CREATE, &changed), error);                               \
    } while (0)
    CREATE_WITH(flags, 2, -EINVAL);
    CREATE_WITH(flags, DRM_XE_EXEC_QUEUE_LOW_LATENCY_HINT, 0);
    CREATE_WITH(reserved[0], 1, -EINVAL);
    CREATE_WITH(width, 0, -EINVAL);
    CREATE_WITH(num_placements, 10, -EINVAL);
    CREATE_WITH(instances, 8, -EFAULT);
    CREATE_WITH(vm_id, 99, -ENOENT);
    CREATE_WITH(width, 2, -EINVAL); /* the same engine twice does not follow itself */
    engines[0].gt_id = 9;
    CREATE_WITH(flags, 0, -EINVAL);
    engines[0] = (struct drm_xe_engine_class_instance){.engine_class = DRM_XE_ENGINE_CLASS_COPY, .engine_instance = 7};
    CREATE_WITH(flags, 0, -EINVAL);
    engines[0] =
        (struct drm_xe_engine_class_instance){.engine_class = DRM_XE_ENGINE_CLASS_VM_BIND, .engine_instance = 1};
    CREATE_WITH(flags, 0, -EINVAL);
    engines[0].engine_instance = 0;
    CREATE_WITH(num_placements, 2, -EINVAL);
    struct drm_xe_ext_set_property property = {.property = DRM_XE_EXEC_QUEUE_SET_PROPERTY_PRIORITY, .value = 3};
    create.extensions = (uint64_t)&property;
    CREATE_WITH(flags, 0, -EINVAL);
    property.value = 1;
    CREATE_WITH(flags, 0, 0);
    property.pad = 1;
    CREATE_WITH(flags, 0, -EINVAL);
    property.pad = 0;
    property.base.name = 1;
    CREATE_WITH(flags, 0, -EINVAL);
    property.base.name = 0;
    property.base.next_extension = (uint64_t)&property;
    CREATE_WITH(flags, 0, -E2BIG);
    create.extensions = 8;
    CREATE_WITH(flags, 0, -EFAULT);

    CHECK_EQUAL(CALL(fd, XE_EXEC_QUEUE_DESTROY, drm_xe_exec_queue_destroy, .exec_queue_id = queue, .pad = 1), -EINVAL);
    CHECK_EQUAL(CALL(fd, XE_EXEC_QUEUE_GET_PROPERTY, drm_xe_exec_queue_get_property, .exec_queue_id = 99), -ENOENT);
    CHECK_EQUAL(
        CALL(fd, XE_EXEC_QUEUE_GET_PROPERTY, drm_xe_exec_queue_get_property, .exec_queue_id = 99, .reserved = {1}),
        -EINVAL);
    CHECK_EQUAL(
        CALL(fd, XE_EXEC_QUEUE_GET_PROPERTY, drm_xe_exec_queue_get_property, .exec_queue_id = queue, .property = 1),
        -EINVAL);
    CHECK_EQUAL(CALL(fd, XE_EXEC_QUEUE_SET_PROPERTY, drm_xe_exec_queue_set_property, .exec_queue_id = 99,
                     .property = DRM_XE_EXEC_QUEUE_SET_PROPERTY_PRIORITY),
                -EINVAL);
    CHECK_EQUAL(CALL(fd, XE_EXEC_QUEUE_SET_PROPERTY, drm_xe_exec_queue_set_property, .exec_queue_id = 99,
                     .property = DRM_XE_EXEC_QUEUE_SET_PROPERTY_MULTI_QUEUE_PRIORITY),
                -ENOENT);
    /* A destroyed VM: its queues are still there, but take nothing. */
    CHECK_EQUAL(CALL(fd, XE_VM_DESTROY, drm_xe_vm_destroy, .vm_id = vm), 0);
    CHECK_EQUAL(test_exec(fd, queue, BATCH, NULL, 0), -ECANCELED);
    CREATE_WITH(extensions, 0, -ENOENT);
    test_close(fd);
    return 0;
}
