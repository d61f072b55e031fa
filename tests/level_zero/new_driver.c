/* A driver that is newer than its loader: it fills tables up to the version asked for, and exports one name. */
#include <stdint.h>

static uint32_t with_properties(void)
{
    return 15;
}

uint32_t zePhysicalMemGetProperties(void)
{
    return 16;
}

uint32_t zeGetMemProcAddrTable(uint32_t version, void **table)
{
    if (version < 0x1000F)
        return 0x78000002;
    table[12] = (void *)with_properties;
    return 0;
}

/* As a driver that knows no such table. */
uint32_t zeGetPhysicalMemProcAddrTable(uint32_t version, void **table)
{
    table[2] = (void *)(uintptr_t)version;
    return 0x78000003;
}
