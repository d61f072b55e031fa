#pragma once
/* Page faults of a VM, kept for VM_GET_PROPERTY. */
#include "core.h"
#include "streamer.h"

void vm_add_fault(struct vm *vm, const struct gpu_fault *fault);
