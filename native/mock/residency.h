#pragma once
/* Whether what a VM needs at once fits into device memory.
 *
 * Where nothing can fault, all objects of a VM have to be in their place while a job of it runs. A long-running VM runs
 * at any time, so there a bind is the last moment to refuse; else it is the EXEC. Objects that may also live in system
 * memory can always make way, and so can those of other VMs. */
#include "core.h"

/* Before `bo` (populated) is mapped: 0 or -ENOMEM. vm->lock is held. */
int residency_check_bind(struct vm *vm, struct bo *bo);
/* Before a job: 0 or -ENOMEM. */
int residency_check_exec(struct vm *vm);
