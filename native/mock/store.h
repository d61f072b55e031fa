#pragma once
/* The bytes of objects: files in a directory of this process on a memory file system, opened on demand so that an
   object costs no descriptor. Another process that gets a descriptor recognises the file by its name and keeps it by a
   hard link of its own.

   <base>/ze-ipc-mock-<uid>/<pid>-<start time>/xe-bo.<device>.<profile>.<placement>.<caching>.<flags>.<serial>

   The directory is flock'ed as long as its process (or a forked child) lives; who starts removes those nobody holds. */
#include <stdbool.h>
#include <stdint.h>

/* What another process must know of an object. */
struct store_attributes {
    uint32_t device;
    char profile[8];
    uint32_t placement;
    uint32_t caching;
    uint32_t flags;
};

struct storage;
struct store;

/* The directory of this process, made at the first call, and a number for a file in it. A forked child that shares an
   object whose file does not exist yet makes, or finds, the very same file. NULL: there can be no directory. */
struct store *store_home(uint64_t *serial);
/* The file of that number, sparse and zeroed if it is new. Returns a descriptor on it, O_RDWR, with *storage; -errno.
   cloexec: O_CLOEXEC or 0. */
int storage_create(struct store *home, uint64_t serial, const struct store_attributes *attributes, uint64_t size,
                   int cloexec, struct storage **storage);
/* Keeps the file behind a descriptor that stays the caller's. ours: as storage_identify said. 0 or -errno. */
int storage_adopt(int fd, const struct store_attributes *attributes, bool ours, struct storage **storage);
/* A new descriptor; flags: O_RDWR or O_RDONLY, O_CLOEXEC. -errno. */
int storage_open(const struct storage *storage, int flags);
void storage_free(struct storage *storage);

enum store_identity {
    STORE_ALIEN, /* neither: no dma-buf */
    STORE_OURS,  /* the bytes of an object of some mock device; attributes are filled in */
    STORE_MEMFD, /* somebody's memfd, or a real dma-buf */
};
/* By the name that /proc gives. */
enum store_identity storage_identify(int fd, struct store_attributes *attributes);
