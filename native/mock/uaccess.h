#pragma once
/* Memory of the calling program: a bad pointer is -EFAULT, never a SIGSEGV. What another thread unmaps in between is
   its program's race. Call with no lock held. */
#include <stddef.h>
#include <stdint.h>

int copy_from_user(void *to, uint64_t from, size_t size);
int copy_to_user(uint64_t to, const void *from, size_t size);
/* One aligned 64-bit load, for what another thread or an engine stores. */
int load_user_u64(uint64_t from, uint64_t *value);
/* One aligned 64-bit store that a polling reader never sees half done; -EFAULT if it cannot be written. */
int store_user_u64(uint64_t to, uint64_t value);
/* 0 if every page of [address, address + size) is mapped and readable (and writable, if asked), else -EFAULT; -EPERM if
   it is readable but not writable. Does not change the memory. */
int check_user_range(uint64_t address, uint64_t size, int writable);
