#pragma once
/* Small integers for pointers: the lowest free id is given out, as the kernel's idr and xarray do. A radix tree of 64
   slots a node; the caller locks. */
#include <stdbool.h>
#include <stdint.h>

struct idr_node;

struct idr {
    struct idr_node *root;
    uint32_t height;
    uint32_t count;
    void *zero; /* what has the id 0 */
    bool zero_is_free;
};

#define IDR_MAX 0x7fffffffu

/* The lowest free id from 1 on, after idr_remove of 0 perhaps 0; 0 with *error = -ENOSPC or -ENOMEM, which is 0 where
   an id was given. pointer must not be NULL. */
uint32_t idr_alloc(struct idr *idr, void *pointer, int *error);
/* Exactly this id: 0, -ENOSPC if taken, -ENOMEM, -EINVAL for 0 and numbers above IDR_MAX. */
int idr_alloc_at(struct idr *idr, uint32_t id, void *pointer);
void *idr_find(const struct idr *idr, uint32_t id);
/* Forgets the id and returns its pointer, NULL if it has none. As in the kernel's xarray, removing 0 while there is
   any other id makes 0 an id like others, to be given out next: who must not do so looks for the id first. */
void *idr_remove(struct idr *idr, uint32_t id);
/* The first id >= *id with its pointer; NULL at the end. For loops: id = 0; while ((p = idr_next(idr, &id))) { ...;
 * id++; } */
void *idr_next(const struct idr *idr, uint32_t *id);
/* Frees the nodes, not what they point to. */
void idr_destroy(struct idr *idr);
