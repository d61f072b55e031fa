#pragma once
/* Objects that may lose their bytes when memory is short: those of which every mapping was advised DONTNEED and that
   nobody else can know. */
#include "core.h"

/* Takes the advice for one mapping of an object; false: its bytes are lost already. vm->lock held. */
bool purge_advise(struct vma *vma, bool dontneed);
/* The object's mappings have changed: it may be purgeable now, or not any more. dev->lock held. */
void purge_update_locked(struct bo *bo);
/* Memory is short: what may go, goes. dev->lock held. */
void purge_reclaim_locked(struct device *dev);
/* The object dies. dev->lock held. */
void purge_forget_locked(struct bo *bo);
