#pragma once
/* Memory of the program that the GPU shall use. */
#include <stdbool.h>
#include <stdint.h>

/* 0; -EFAULT: not mapped, or a mapping of an object, which has no pages of its own to give; -EPERM: not writable. May
   be called with vm->lock held. */
int userptr_check(uint64_t address, uint64_t size, bool writable);
