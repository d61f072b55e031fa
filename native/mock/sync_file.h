#pragma once
/* Fences and syncobjs as descriptors.

   A sync_file is one end of a socket pair with an address of ours. The other end stays with the process that made it,
   sends one record and closes when the fence signals: so any program may poll() the descriptor, in any process it was
   passed to, and a process that dies signals what it owes. Reading it is never needed, everybody only peeks. The
   address also has the number of the timeline's point that the fence is, if any: it stays one wherever it is put in. */
#include <stdbool.h>

struct fence;
struct syncobj;

/* A new descriptor, close-on-exec, that is readable once the fence signalled; -errno. */
int sync_file_export(struct fence *fence);
/* The fence behind a descriptor, whoever made it; NULL with *error: -EINVAL if it is no sync_file. */
struct fence *sync_file_import(int fd, int *error);
bool sync_file_is(int fd);
/* MERGE, FILE_INFO, SET_DEADLINE of a sync_file; -ENOTTY for other requests and other descriptors. */
int sync_file_ioctl(int fd, unsigned long request, void *argument);

/* A new descriptor, close-on-exec, that keeps the syncobj alive; -errno. */
int syncobj_export(struct syncobj *syncobj);
/* With a reference; NULL if the descriptor is none that this process exported. */
struct syncobj *syncobj_import(int fd);
/* In a forked child: what the parent promised is the parent's. */
void sync_file_fork_child(void);
