#pragma once
/* A space from the inside: its objects, for the files that implement ze_space.h. */
#include "ze_observe.h"
#include "ze_space.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>

enum {
    SPACE_BUCKETS = 4096,
    /* zel_handle_type_t */
    HANDLE_CONTEXT = 2,
    HANDLE_PHYSICAL_MEM = 13,
};

struct object {
    /* Null for memory that is no physical memory object, and when its owner has destroyed it. */
    ze_physical_mem_handle_t handle;
    uint64_t size;
    uint32_t references;
    bool imported;
    /* Of an object that other code of this process owns: its context. It is never destroyed here. */
    ze_context_handle_t owner;
    bool spare_fd;
    /* Of an import the driver's own descriptor; of a borrowed object that was destroyed one that keeps the memory;
     * else -1. */
    int fd;
    /* Identity of its dma-buf, known from its first export or import on. */
    bool known;
    dev_t device;
    ino_t inode;
    /* Next in its bucket or, when unused, in the list of unused ones; 0 ends both. */
    uint64_t next;
    /* Next borrowed object in its bucket. */
    uint64_t next_borrowed;
};

struct ze_space {
    const struct ze_table *table;
    ze_context_handle_t context;
    ze_device_handle_t device;
    char *library;
    uint32_t raw;
    ze_context_handle_t raw_context;
    /* Guards everything below. */
    pthread_mutex_t lock;
    /* Indexed by object; 0 is none. */
    struct object *objects;
    uint64_t capacity;
    uint64_t unused;
    uint64_t live;
    /* By inode, and borrowed ones by handle. */
    uint64_t buckets[SPACE_BUCKETS];
    uint64_t borrowed[SPACE_BUCKETS];
    struct ze_space *other;
};

/*
 * All spaces of the process, for the kernel's handles are the process's. Its lock comes before that of a space; whoever
 * imports holds it.
 */
extern pthread_mutex_t ze_spaces_lock;
extern struct ze_space *ze_spaces;

/* All with the space's lock held. */
struct object *ze_space_lookup(struct ze_space *space, uint64_t number);
uint64_t ze_space_find(struct ze_space *space, const struct stat *status);
void ze_space_remember(struct ze_space *space, uint64_t number, const struct stat *status);
int ze_space_create_object(struct ze_space *space, ze_physical_mem_desc_t *desc, uint64_t *number, uint32_t *result);
/* A new object without a handle and with one reference; 0 when there is no memory. */
uint64_t ze_space_new_object(struct ze_space *space, uint64_t size);
void ze_space_unborrow(struct ze_space *space, uint64_t number);

static inline int driver_refused(uint32_t code, uint32_t *result)
{
    *result = code;
    return code == ZE_RESULT_SUCCESS ? 0 : -EIO;
}
