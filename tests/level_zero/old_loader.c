/* A library with few of a loader's names, as an old loader has. */
#include <stdint.h>

uint32_t zeInit(uint32_t flags)
{
    return flags == 1 ? 0 : 0x78000004;
}

uint32_t zeMemFree(void *context, void *pointer)
{
    return context && pointer ? 0 : 0x78000005;
}

/* Handles of this loader are odd, those of its driver even. */
uint32_t zelLoaderTranslateHandle(uint32_t kind, void *in, void **out)
{
    *out = (void *)((uintptr_t)in & ~(uintptr_t)1);
    return kind > 13 ? 0x78000004 : 0;
}
