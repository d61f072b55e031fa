#pragma once
/* The handlers of execution and its fences that ioctl_table.c names. */
struct drm_file;

/* syncobj.c, syncobj_fd.c, syncobj_wait.c, syncobj_array.c, syncobj_eventfd.c */
int syncobj_create_ioctl(struct drm_file *file, void *data);
int syncobj_destroy_ioctl(struct drm_file *file, void *data);
int syncobj_handle_to_fd_ioctl(struct drm_file *file, void *data);
int syncobj_fd_to_handle_ioctl(struct drm_file *file, void *data);
int syncobj_wait_ioctl(struct drm_file *file, void *data);
int syncobj_timeline_wait_ioctl(struct drm_file *file, void *data);
int syncobj_reset_ioctl(struct drm_file *file, void *data);
int syncobj_signal_ioctl(struct drm_file *file, void *data);
int syncobj_timeline_signal_ioctl(struct drm_file *file, void *data);
int syncobj_query_ioctl(struct drm_file *file, void *data);
int syncobj_transfer_ioctl(struct drm_file *file, void *data);
int syncobj_eventfd_ioctl(struct drm_file *file, void *data);

/* queue_create.c, queue.c, exec.c */
int exec_queue_create_ioctl(struct drm_file *file, void *data);
int exec_queue_destroy_ioctl(struct drm_file *file, void *data);
int exec_queue_get_property_ioctl(struct drm_file *file, void *data);
int exec_queue_set_property_ioctl(struct drm_file *file, void *data);
int exec_ioctl(struct drm_file *file, void *data);

/* madvise.c, vm_property.c */
int madvise_ioctl(struct drm_file *file, void *data);
int vm_get_property_ioctl(struct drm_file *file, void *data);
