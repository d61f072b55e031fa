#pragma once
#include <stddef.h>

/* Maps the PCI barrier page for the program: mmap's result. fixed: exactly at address, over what is there. */
void *barrier_map(void *address, int fixed);
