#pragma once
/* Reading memory that is mapped write-combined: device memory behind the PCI BAR, and some system memory. */
#include <stddef.h>

/* memcpy() whose source may be write-combined: whole cache lines a load instead of a few bytes, where the CPU can. */
void xe_read_wc(void *to, const void *from, size_t size);
