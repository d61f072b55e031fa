#include "vm_fault.h"

#include <stdlib.h>

enum { FAULTS_MAX = 50, PRECISION = 4096 };

/* The first ones count; more are forgotten. */
void vm_add_fault(struct vm *vm, const struct gpu_fault *fault)
{
    pthread_mutex_lock(&vm->lock);
    if (!vm->faults)
        vm->faults = calloc(FAULTS_MAX, sizeof(*vm->faults));
    if (vm->faults && vm->num_faults < FAULTS_MAX)
        vm->faults[vm->num_faults++] = (struct xe_vm_fault){
            .address = fault->address & ~UINT64_C(4095),
            .address_precision = PRECISION,
            .access_type = (uint8_t)fault->access,
            .fault_type = (uint8_t)fault->type,
            .fault_level = FAULT_LEVEL_PTE,
        };
    pthread_mutex_unlock(&vm->lock);
}
