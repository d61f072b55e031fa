#pragma once
/* Between device.c and the files whose locks it takes at fork. */
#include "core.h"

extern pthread_mutex_t registry_lock;

void bo_map_lock(void);
void bo_map_unlock(void);
void store_lock(void);
void store_unlock(void);
/* The directory is the parent's: files of inherited objects are opened in it, nothing is removed from it. */
void store_fork_child(void);
