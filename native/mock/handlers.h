#pragma once
/* The handlers that ioctl_table.c names. */
struct drm_file;

/* drm_core.c */
int drm_version_ioctl(struct drm_file *file, void *data);
int drm_get_unique_ioctl(struct drm_file *file, void *data);
int drm_get_magic_ioctl(struct drm_file *file, void *data);
int drm_get_client_ioctl(struct drm_file *file, void *data);
int drm_set_version_ioctl(struct drm_file *file, void *data);
int drm_get_cap_ioctl(struct drm_file *file, void *data);
int drm_set_client_cap_ioctl(struct drm_file *file, void *data);
int drm_auth_magic_ioctl(struct drm_file *file, void *data);
int drm_master_ioctl(struct drm_file *file, void *data);
int drm_no_kms_ioctl(struct drm_file *file, void *data);
int drm_set_client_name_ioctl(struct drm_file *file, void *data);

/* gem.c, mmap.c, prime.c */
int gem_close_ioctl(struct drm_file *file, void *data);
int gem_flink_ioctl(struct drm_file *file, void *data);
int gem_open_ioctl(struct drm_file *file, void *data);
int gem_create_ioctl(struct drm_file *file, void *data);
int gem_mmap_offset_ioctl(struct drm_file *file, void *data);
int prime_handle_to_fd_ioctl(struct drm_file *file, void *data);
int prime_fd_to_handle_ioctl(struct drm_file *file, void *data);

/* query.c, vm.c, bind.c, user_fence.c, range_attrs.c */
int device_query_ioctl(struct drm_file *file, void *data);
int observation_ioctl(struct drm_file *file, void *data);
int vm_create_ioctl(struct drm_file *file, void *data);
int vm_destroy_ioctl(struct drm_file *file, void *data);
int vm_bind_ioctl(struct drm_file *file, void *data);
int vm_query_attrs_ioctl(struct drm_file *file, void *data);
int wait_user_fence_ioctl(struct drm_file *file, void *data);
