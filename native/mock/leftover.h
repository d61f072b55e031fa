#pragma once
/* Objects whose last handle is gone while a CPU mapping or a dma-buf descriptor of them may be left. In the kernel such
   an object lives on; the mock forgets it, because it sees neither munmap nor close, and keeps only what can still be
   asked about it: its mmap offset. dev->lock is held. */
#include "core.h"

void leftover_add_locked(const struct bo *bo);
/* Whether an object of this offset and at least this size is still alive. */
bool leftover_lives_locked(struct device *dev, uint64_t offset, uint64_t size);
/* The offset that the object of a file had before it was forgotten, which it gets back; 0: never had one. */
uint64_t leftover_take_locked(struct device *dev, uint64_t inode_dev, uint64_t inode);
