#pragma once
#include "core.h"

int device_add_fault(struct device *dev, uint32_t request, uint64_t nth, int error, uint32_t delay_us);
void device_clear_faults(struct device *dev);
/* Adds the entries of $ZE_IPC_MOCK_FAULTS. */
void device_read_fault_environment(struct device *dev);
