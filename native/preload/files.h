#pragma once
/* Which descriptors of this process are open files of a DRM node, and of which.
 *
 * open() makes one; dup() shares it. A descriptor that came some other way (inherited over exec, SCM_RIGHTS, an
 * unseen dup) is recognised by its inode when it is first used: if kcmp(2) says that it shares its open file
 * description with one we know, it is that one, else it becomes a new one. The kernel would share the tables of
 * handles between processes there; a process of its own cannot, so a passed or inherited descriptor starts empty and
 * after fork() parent and child go on with a copy each.
 *
 * No lock is taken, so that all of it may run in a signal handler and in the child of any fork. */
#include <stdbool.h>

#include "core.h"
#include "tree.h"

struct open_file;

/* A new open file of the node behind `fd`, which the caller just opened; nothing happens if it is none. */
void file_opened(int fd);
/* The DRM file behind a descriptor and a reference on it, NULL with errno 0 if it is none of ours; NULL with errno
 * if it cannot be opened. */
struct open_file *file_get(int fd);
void file_put(struct open_file *file);
struct drm_file *file_drm(const struct open_file *file);

/* `to` is a duplicate of `from`. */
void file_duplicated(int from, int to);
/* `fd` is about to be closed, or was replaced: what was known of it, to be put once it is. */
struct open_file *file_forget(int fd);
void file_forget_range(unsigned int first, unsigned int last);

/* Between vfork() and exec: the memory is the parent's, so the parent's table must stay as it is. */
bool in_vfork_child(void);
