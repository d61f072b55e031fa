#include "ze_table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define SINCE(major, minor) ((major) << 16 | (minor))
#define ROW(entry, major, minor) {"ze" #entry, offsetof(struct ze_table, entry), SINCE(major, minor)}

const struct ze_entry ze_entries[] = {
    ROW(Init, 1, 0),
    ROW(InitDrivers, 1, 10),
    ROW(DriverGet, 1, 0),
    ROW(DriverGetApiVersion, 1, 0),
    ROW(DriverGetProperties, 1, 0),
    ROW(DriverGetExtensionProperties, 1, 0),
    ROW(DeviceGet, 1, 0),
    ROW(DeviceGetSubDevices, 1, 0),
    ROW(DeviceGetProperties, 1, 0),
    ROW(DeviceGetMemoryProperties, 1, 0),
    ROW(DeviceGetCommandQueueGroupProperties, 1, 0),
    ROW(DevicePciGetPropertiesExt, 1, 3),
    ROW(ContextCreate, 1, 0),
    ROW(ContextDestroy, 1, 0),
    ROW(CommandQueueCreate, 1, 0),
    ROW(CommandQueueDestroy, 1, 0),
    ROW(CommandQueueExecuteCommandLists, 1, 0),
    ROW(CommandQueueSynchronize, 1, 0),
    ROW(CommandListCreate, 1, 0),
    ROW(CommandListDestroy, 1, 0),
    ROW(CommandListClose, 1, 0),
    ROW(CommandListReset, 1, 0),
    ROW(CommandListAppendMemoryCopy, 1, 0),
    ROW(CommandListAppendMemoryFill, 1, 0),
    ROW(MemAllocShared, 1, 0),
    ROW(MemAllocDevice, 1, 0),
    ROW(MemAllocHost, 1, 0),
    ROW(MemFree, 1, 0),
    ROW(MemGetAddressRange, 1, 0),
    ROW(MemGetIpcHandle, 1, 0),
    ROW(MemOpenIpcHandle, 1, 0),
    ROW(MemCloseIpcHandle, 1, 0),
    ROW(MemPutIpcHandle, 1, 6),
    ROW(MemGetIpcHandleWithProperties, 1, 15),
    ROW(PhysicalMemCreate, 1, 0),
    ROW(PhysicalMemDestroy, 1, 0),
    ROW(PhysicalMemGetProperties, 1, 15),
    ROW(VirtualMemReserve, 1, 0),
    ROW(VirtualMemFree, 1, 0),
    ROW(VirtualMemQueryPageSize, 1, 0),
    ROW(VirtualMemMap, 1, 0),
    ROW(VirtualMemUnmap, 1, 0),
    ROW(VirtualMemSetAccessAttribute, 1, 0),
};

enum { COUNT = sizeof(ze_entries) / sizeof(*ze_entries) };
_Static_assert(COUNT * sizeof(void *) == sizeof(struct ze_table), "one row an entry");

uint32_t ze_entry_count(void)
{
    return COUNT;
}

static void **slot(struct ze_table *table, uint32_t entry)
{
    return (void **)((char *)table + ze_entries[entry].offset);
}

void *ze_table_address(const struct ze_table *table, uint32_t entry)
{
    void *address;

    memcpy(&address, (const char *)table + ze_entries[entry].offset, sizeof(address));
    return address;
}

int ze_table_open(struct ze_table *table, const char *library, char *error, size_t room)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

    memset(table, 0, sizeof(*table));
    if (!handle) {
        snprintf(error, room, "%s", dlerror());
        return -1;
    }
    for (uint32_t i = 0; i < COUNT; i++)
        *slot(table, i) = dlsym(handle, ze_entries[i].name);
    return 0;
}

/* The tables that a driver fills grow at their ends only: room for more entries than we know. */
union driver_table {
    ze_mem_dditable_t mem;
    ze_physical_mem_dditable_t physical_mem;
    void *room[256];
};

static void ask_driver(void *driver, const char *name, uint32_t version, union driver_table *table)
{
    ze_result_t (*fill)(uint32_t, void *) = (ze_result_t (*)(uint32_t, void *))dlsym(driver, name);

    memset(table, 0, sizeof(*table));
    if (fill && fill(version, table) != ZE_RESULT_SUCCESS)
        memset(table, 0, sizeof(*table));
}

static int fill_gap(void **entry, void *from_table, void *driver, const char *name)
{
    if (*entry)
        return 0;
    *entry = from_table ? from_table : dlsym(driver, name);
    return *entry != NULL;
}

int ze_table_from_driver(struct ze_table *table, const char *driver, uint32_t version)
{
    void *handle = dlopen(driver, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    union driver_table mem, physical;
    int filled = 0;

    if (!handle)
        return -1;
    ask_driver(handle, "zeGetMemProcAddrTable", version, &mem);
    ask_driver(handle, "zeGetPhysicalMemProcAddrTable", version, &physical);
    filled += fill_gap((void **)&table->MemPutIpcHandle, mem.mem.pfnPutIpcHandle, handle, "zeMemPutIpcHandle");
    filled += fill_gap((void **)&table->MemGetIpcHandleWithProperties, mem.mem.pfnGetIpcHandleWithProperties, handle,
                       "zeMemGetIpcHandleWithProperties");
    filled += fill_gap((void **)&table->PhysicalMemGetProperties, physical.physical_mem.pfnGetProperties, handle,
                       "zePhysicalMemGetProperties");
    return filled;
}

int ze_driver_entries(const char *driver, uint32_t version)
{
    void *handle = dlopen(driver, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    union driver_table mem, physical;
    int found = 0;

    if (!handle)
        return -1;
    ask_driver(handle, "zeGetMemProcAddrTable", version, &mem);
    ask_driver(handle, "zeGetPhysicalMemProcAddrTable", version, &physical);
    if (mem.mem.pfnPutIpcHandle || dlsym(handle, "zeMemPutIpcHandle"))
        found |= ZE_DRIVER_PUT;
    if (mem.mem.pfnGetIpcHandleWithProperties || dlsym(handle, "zeMemGetIpcHandleWithProperties"))
        found |= ZE_DRIVER_WITH_PROPERTIES;
    if (physical.physical_mem.pfnGetProperties || dlsym(handle, "zePhysicalMemGetProperties"))
        found |= ZE_DRIVER_PHYSICAL_PROPERTIES;
    dlclose(handle);
    return found;
}

void ze_table_trim(struct ze_table *table, uint32_t found)
{
    if (!(found & ZE_DRIVER_PUT))
        table->MemPutIpcHandle = NULL;
    if (!(found & ZE_DRIVER_WITH_PROPERTIES))
        table->MemGetIpcHandleWithProperties = NULL;
    if (!(found & ZE_DRIVER_PHYSICAL_PROPERTIES))
        table->PhysicalMemGetProperties = NULL;
}

void *ze_raw_handle(const char *library, uint32_t kind, void *handle)
{
    void *loader = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    ze_result_t (*translate)(uint32_t, void *, void **) =
        loader ? (ze_result_t (*)(uint32_t, void *, void **))dlsym(loader, "zelLoaderTranslateHandle") : NULL;
    void *raw = handle;

    if (translate && translate(kind, handle, &raw) != ZE_RESULT_SUCCESS)
        raw = handle;
    if (loader)
        dlclose(loader);
    return raw;
}
