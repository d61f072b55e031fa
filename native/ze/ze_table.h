#pragma once
/*
 * The loader's functions, found by dlopen and dlsym. A library that was opened stays in the process: drivers below it
 * have threads and exit handlers of their own.
 */
#include "ze_api.h"

/* One entry of struct ze_table. */
struct ze_entry {
    const char *name;
    size_t offset;
    /* The version of the specification that brought it: major << 16 | minor. */
    uint32_t since;
};

extern const struct ze_entry ze_entries[];
uint32_t ze_entry_count(void);

/* Where an entry was found, or null. */
void *ze_table_address(const struct ze_table *table, uint32_t entry);

/* Opens the library and fills the table with what it exports. 0, or -1 with the linker's words in error. */
int ze_table_open(struct ze_table *table, const char *library, char *error, size_t room);

/*
 * Gives entries that an older loader lacks (they stay null otherwise) the driver's own, from the tables that the driver
 * fills for a loader of that version, else by the names it exports. The driver must have been loaded already. They take
 * the driver's handles: see ze_raw_handle. The number of entries that were filled, or -1 if the driver is not loaded.
 */
int ze_table_from_driver(struct ze_table *table, const char *driver, uint32_t version);

/* Entries that a driver may be too old for, while its loader exports them all the same. */
enum {
    ZE_DRIVER_PUT = 1,
    ZE_DRIVER_WITH_PROPERTIES = 2,
    ZE_DRIVER_PHYSICAL_PROPERTIES = 4,
};

/* Which of those a driver has, or -1 if it is not loaded. */
int ze_driver_entries(const char *driver, uint32_t version);

/* Takes out of the table those that no driver has. */
void ze_table_trim(struct ze_table *table, uint32_t found);

/*
 * The driver's handle behind a handle of the loader, by the function that the loader exports for it; the same handle
 * where the loader wraps nothing. kind is zel_handle_type_t.
 */
void *ze_raw_handle(const char *library, uint32_t kind, void *handle);
