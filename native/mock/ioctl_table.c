/* The table of ioctls: what is not here does not exist (GEM_CHANGE_HANDLE, too: 7.2.13 answers EINVAL to all of it). */
#include "core.h"
#include "exec_handlers.h"
#include "handlers.h"

#define ROW(name, row_flags, row_handler) [DRM_IOCTL_##name & 0xff] = {DRM_IOCTL_##name, row_flags, row_handler, #name}

const struct ioctl_row ioctl_table[XE_MOCK_MAX_IOCTLS] = {
    /* The DRM core. */
    ROW(VERSION, IOCTL_RENDER, drm_version_ioctl),
    ROW(GET_UNIQUE, 0, drm_get_unique_ioctl),
    ROW(GET_MAGIC, 0, drm_get_magic_ioctl),
    ROW(GET_CLIENT, 0, drm_get_client_ioctl),
    ROW(SET_VERSION, 0, drm_set_version_ioctl),
    ROW(GEM_CLOSE, IOCTL_RENDER, gem_close_ioctl),
    ROW(GEM_FLINK, 0, gem_flink_ioctl),
    ROW(GEM_OPEN, 0, gem_open_ioctl),
    ROW(GET_CAP, IOCTL_RENDER, drm_get_cap_ioctl),
    ROW(SET_CLIENT_CAP, 0, drm_set_client_cap_ioctl),
    ROW(AUTH_MAGIC, 0, drm_auth_magic_ioctl),
    ROW(SET_MASTER, IOCTL_ROOT, drm_master_ioctl),
    ROW(DROP_MASTER, IOCTL_ROOT, drm_master_ioctl),
    ROW(PRIME_HANDLE_TO_FD, IOCTL_RENDER, prime_handle_to_fd_ioctl),
    ROW(PRIME_FD_TO_HANDLE, IOCTL_RENDER, prime_fd_to_handle_ioctl),
    ROW(MODE_GETRESOURCES, 0, drm_no_kms_ioctl),
    ROW(MODE_CREATE_DUMB, 0, drm_no_kms_ioctl),
    ROW(MODE_MAP_DUMB, 0, drm_no_kms_ioctl),
    ROW(MODE_DESTROY_DUMB, 0, drm_no_kms_ioctl),
    ROW(SET_CLIENT_NAME, IOCTL_RENDER, drm_set_client_name_ioctl),
    ROW(SYNCOBJ_CREATE, IOCTL_RENDER, syncobj_create_ioctl),
    ROW(SYNCOBJ_DESTROY, IOCTL_RENDER, syncobj_destroy_ioctl),
    ROW(SYNCOBJ_HANDLE_TO_FD, IOCTL_RENDER, syncobj_handle_to_fd_ioctl),
    ROW(SYNCOBJ_FD_TO_HANDLE, IOCTL_RENDER, syncobj_fd_to_handle_ioctl),
    ROW(SYNCOBJ_WAIT, IOCTL_RENDER, syncobj_wait_ioctl),
    ROW(SYNCOBJ_RESET, IOCTL_RENDER, syncobj_reset_ioctl),
    ROW(SYNCOBJ_SIGNAL, IOCTL_RENDER, syncobj_signal_ioctl),
    ROW(SYNCOBJ_TIMELINE_WAIT, IOCTL_RENDER, syncobj_timeline_wait_ioctl),
    ROW(SYNCOBJ_QUERY, IOCTL_RENDER, syncobj_query_ioctl),
    ROW(SYNCOBJ_TRANSFER, IOCTL_RENDER, syncobj_transfer_ioctl),
    ROW(SYNCOBJ_TIMELINE_SIGNAL, IOCTL_RENDER, syncobj_timeline_signal_ioctl),
    ROW(SYNCOBJ_EVENTFD, IOCTL_RENDER, syncobj_eventfd_ioctl),

    /* xe. */
    ROW(XE_DEVICE_QUERY, IOCTL_RENDER, device_query_ioctl),
    ROW(XE_GEM_CREATE, IOCTL_RENDER, gem_create_ioctl),
    ROW(XE_GEM_MMAP_OFFSET, IOCTL_RENDER, gem_mmap_offset_ioctl),
    ROW(XE_VM_CREATE, IOCTL_RENDER, vm_create_ioctl),
    ROW(XE_VM_DESTROY, IOCTL_RENDER, vm_destroy_ioctl),
    ROW(XE_VM_BIND, IOCTL_RENDER, vm_bind_ioctl),
    ROW(XE_WAIT_USER_FENCE, IOCTL_RENDER, wait_user_fence_ioctl),
    ROW(XE_EXEC_QUEUE_CREATE, IOCTL_RENDER, exec_queue_create_ioctl),
    ROW(XE_EXEC_QUEUE_DESTROY, IOCTL_RENDER, exec_queue_destroy_ioctl),
    ROW(XE_EXEC_QUEUE_GET_PROPERTY, IOCTL_RENDER, exec_queue_get_property_ioctl),
    ROW(XE_EXEC_QUEUE_SET_PROPERTY, IOCTL_RENDER, exec_queue_set_property_ioctl),
    ROW(XE_EXEC, IOCTL_RENDER, exec_ioctl),
    ROW(XE_MADVISE, IOCTL_RENDER, madvise_ioctl),
    ROW(XE_VM_GET_PROPERTY, IOCTL_RENDER, vm_get_property_ioctl),
    ROW(XE_OBSERVATION, IOCTL_RENDER, observation_ioctl),
    ROW(XE_VM_QUERY_MEM_RANGE_ATTRS, IOCTL_RENDER, vm_query_attrs_ioctl),
};
