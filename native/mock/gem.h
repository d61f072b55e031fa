#pragma once
/* Between gem.c, bo.c, prime.c, mmap.c and vm.c. dev->lock is held where a name ends in _locked. */
#include "core.h"

/* One reference; not accounted yet, no handle. NULL: no memory. */
struct bo *bo_new(struct device *dev, uint64_t size);
/* The bytes' file: made if it does not exist yet. 0 or -errno. With keep_fd != NULL the descriptor that made it is
   handed over (opened with cloexec: O_CLOEXEC or 0), or -1 if the file was there already. */
int bo_make_file_locked(struct bo *bo, int *keep_fd, int cloexec);
/* Says which file it is: from now on the bo is found by it. 0 or -ENOMEM. */
int bo_set_inode_locked(struct bo *bo, uint64_t inode_dev, uint64_t inode);
/* Gives the bo its mmap offset on the first call; 0: no memory. */
uint64_t bo_mmap_offset_locked(struct bo *bo);

/* A new handle, which takes a reference of its own; 0 with *error. */
uint32_t handle_new_locked(struct drm_file *file, struct bo *bo, int *error);
/* The file's handle that a repeated import finds, or NULL. */
struct handle *handle_prime_locked(const struct drm_file *file, const struct bo *bo);
bool handle_exists_locked(const struct drm_file *file, const struct bo *bo);
/* -EINVAL: no such handle. */
int handle_close_locked(struct drm_file *file, uint32_t id);
void gem_close_all(struct drm_file *file);

/* A VM is closed: mappings go, no bind works any more. No lock held. */
void vm_close(struct vm *vm);
