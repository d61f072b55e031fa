#pragma once
/*
 * A context on one device and its table of physical memory objects. An object is a small number, counted: importing the
 * same dma-buf twice into one process gives the same object, for drivers take a GEM handle over with every import and
 * close it with the first that goes.
 *
 * Every function returns 0 or -errno; -EIO says that the driver refused and *result why. *done is how many entries were
 * finished: on an error the index of the one that failed. Those that may be long take *done as their start too and
 * return -EINTR after a while: call again to go on.
 */
#include "object_reply.h"
#include "ze_table.h"

struct ze_space;

/* Entries of the table that are the driver's own, and so take its handles. */
enum {
    ZE_RAW_PROPERTIES = 1,
    ZE_RAW_PUT = 2,
};

/* library: the loader's, by which handles are translated; raw: ZE_RAW_*. */
struct ze_space *ze_space_create(const struct ze_table *table, ze_context_handle_t context, ze_device_handle_t device,
                                 const char *library, uint32_t raw);

/* Destroys what objects are left; nothing of them may be mapped. The context stays. */
void ze_space_destroy(struct ze_space *space);

/* How many distinct objects have references. */
uint64_t ze_objects_live(struct ze_space *space);

int ze_object_create(struct ze_space *space, uint64_t size, uint32_t flags, uint64_t *object, uint32_t *result);

/* A number for memory that is no physical memory object (USM): it is counted, and never exported. */
int ze_object_adopt(struct ze_space *space, uint64_t size, uint64_t *object);

/* One reference more for every entry; on an error none. */
int ze_objects_retain(struct ze_space *space, const uint64_t *objects, uint64_t count, uint64_t *done);

/* One reference less for every entry; the last one destroys. Goes through to the end. */
int ze_objects_release(struct ze_space *space, const uint64_t *objects, uint64_t count, uint64_t *done,
                       uint32_t *result);

/* The size in bytes of every object. */
int ze_objects_sizes(struct ze_space *space, const uint64_t *objects, uint64_t count, uint64_t *sizes, uint64_t *done);

/* A dma-buf descriptor for every object, the caller's own. */
int ze_objects_export(struct ze_space *space, const uint64_t *objects, uint64_t count, int32_t *fds, uint64_t *done,
                      uint32_t *result);

/* An object with one reference for every dma-buf descriptor, which stays the caller's. -EBUSY: another space of this
 * process has it. */
int ze_objects_import(struct ze_space *space, const int32_t *fds, uint64_t count, uint64_t *objects, uint64_t *done,
                      uint32_t *result);

/*
 * An object that other code of this process owns, in a context of its own, with one reference more. Its memory can be
 * exported until that is released, even if its owner destroys it, as long as ze_spaces_keep hears of that. spare_fd:
 * see ze_spaces_spare_fd.
 */
int ze_object_borrow(struct ze_space *space, ze_physical_mem_handle_t handle, ze_context_handle_t owner, uint64_t size,
                     int spare_fd, uint64_t *number);

/* Its owner is about to use the descriptor that the driver keeps for an object: it is not to be closed from here on. */
void ze_spaces_spare_fd(ze_physical_mem_handle_t handle);

/* Before the owner of a physical memory object destroys it: whoever has borrowed it takes a descriptor of it. */
void ze_spaces_keep(ze_physical_mem_handle_t handle);

/* The driver's handle of an object that is held, or null. */
ze_physical_mem_handle_t ze_object_handle(struct ze_space *space, uint64_t object);

/* Maps extents back to back from address on, one driver call each. access: 1 is read-only. */
int ze_objects_map(struct ze_space *space, uint64_t address, const uint64_t *objects, const uint64_t *offsets,
                   const uint64_t *sizes, const uint8_t *access, uint64_t count, uint64_t *done, uint32_t *result);

/* The object stream and its short form over a space; *result is the driver's on STREAM_OBJECT with -EIO. */
int ze_stream_send(struct ze_space *space, struct stream_send *send, uint32_t *result);
int ze_stream_receive(struct ze_space *space, struct stream_receive *receive, uint32_t *result);
int ze_reply_send(struct ze_space *space, const struct object_reply *reply, uint32_t *result);
int ze_reply_import(struct ze_space *space, struct object_arrival *arrival, uint32_t *result);

/* A CPU view of extents back to back, through their dma-bufs. */
struct ze_cpu_map {
    const uint64_t *objects;
    const uint64_t *offsets;
    const uint64_t *sizes;
    uint64_t count;
    uint32_t writable;
    /* Out. */
    uint32_t result;
    uint64_t address;
    uint64_t size;
    uint64_t done;
};

/* On an error nothing stays mapped. */
int ze_cpu_map(struct ze_space *space, struct ze_cpu_map *map);

/* Unmaps a view; needs no space, so a view may outlive its own. */
int ze_cpu_unmap(uint64_t address, uint64_t size);
