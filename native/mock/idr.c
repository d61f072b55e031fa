#include "idr.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define BITS 6
#define SLOTS (1u << BITS)
#define FULL UINT64_MAX

struct idr_node {
    uint64_t used; /* slots that are not NULL */
    uint64_t full; /* slots below which nothing is free; in a leaf the same as used */
    void *slots[SLOTS];
};

/* Ids run from 1; slot 0 of the leftmost leaf is marked used for ever by this. */
static char never;

static uint64_t capacity(uint32_t height)
{
    return height * BITS >= 32 ? UINT64_C(1) << 32 : UINT64_C(1) << (height * BITS);
}

static unsigned slot_of(uint32_t id, uint32_t level)
{
    return id >> (level * BITS) & (SLOTS - 1);
}

/* One level more, until id fits. */
static int grow(struct idr *idr, uint64_t id)
{
    if (!idr->root) {
        struct idr_node *leaf = calloc(1, sizeof(*leaf));
        if (!leaf)
            return -ENOMEM;
        leaf->slots[0] = &never;
        leaf->used = leaf->full = 1;
        idr->root = leaf;
        idr->height = 1;
    }
    while (id >= capacity(idr->height)) {
        struct idr_node *node = calloc(1, sizeof(*node));
        if (!node)
            return -ENOMEM;
        node->slots[0] = idr->root;
        node->used = 1;
        node->full = idr->root->full == FULL;
        idr->root = node;
        idr->height++;
    }
    return 0;
}

int idr_alloc_at(struct idr *idr, uint32_t id, void *pointer)
{
    if (id == 0 || id > IDR_MAX)
        return -EINVAL;
    if (idr_find(idr, id))
        return -ENOSPC;
    int r = grow(idr, id);
    if (r)
        return r;
    struct idr_node *path[8] = {0};
    struct idr_node *node = idr->root;
    for (uint32_t level = idr->height - 1; level > 0; level--) {
        path[level] = node;
        unsigned slot = slot_of(id, level);
        if (!node->slots[slot]) {
            node->slots[slot] = calloc(1, sizeof(*node)); /* an empty one left behind by a failure is harmless */
            if (!node->slots[slot])
                return -ENOMEM;
            node->used |= UINT64_C(1) << slot;
        }
        node = node->slots[slot];
    }
    unsigned slot = slot_of(id, 0);
    node->slots[slot] = pointer;
    node->used |= UINT64_C(1) << slot;
    node->full = node->used;
    for (uint32_t level = 1; level < idr->height && node->full == FULL; level++) {
        path[level]->full |= UINT64_C(1) << slot_of(id, level);
        node = path[level];
    }
    idr->count++;
    return 0;
}

static uint64_t lowest_free(const struct idr *idr)
{
    if (!idr->root)
        return 1;
    if (idr->root->full == FULL)
        return capacity(idr->height);
    const struct idr_node *node = idr->root;
    uint64_t id = 0;
    for (uint32_t level = idr->height - 1; node && level > 0; level--) {
        unsigned slot = (unsigned)__builtin_ctzll(~node->full);
        id |= (uint64_t)slot << (level * BITS);
        node = node->slots[slot];
    }
    return node ? id | (unsigned)__builtin_ctzll(~node->full) : id;
}

uint32_t idr_alloc(struct idr *idr, void *pointer, int *error)
{
    if (idr->zero_is_free && !idr->zero) {
        idr->zero = pointer;
        idr->count++;
        *error = 0;
        return 0;
    }
    uint64_t id = lowest_free(idr);
    *error = id > IDR_MAX ? -ENOSPC : idr_alloc_at(idr, (uint32_t)id, pointer);
    return *error ? 0 : (uint32_t)id;
}

void *idr_find(const struct idr *idr, uint32_t id)
{
    if (id == 0)
        return idr->zero;
    if (!idr->root || id >= capacity(idr->height))
        return NULL;
    void *node = idr->root;
    for (uint32_t level = idr->height; node && level-- > 0;)
        node = ((struct idr_node *)node)->slots[slot_of(id, level)];
    return node;
}

/* Without nodes slot 0 is as it was. */
static void drop_nodes(struct idr *idr)
{
    bool free = idr->zero_is_free;
    idr_destroy(idr);
    idr->zero_is_free = free;
}

static void *remove_zero(struct idr *idr)
{
    void *pointer = idr->zero;
    if (idr->count)
        idr->zero_is_free = true;
    idr->zero = NULL;
    if (pointer && --idr->count == 0)
        drop_nodes(idr);
    return pointer;
}

void *idr_remove(struct idr *idr, uint32_t id)
{
    if (id == 0)
        return remove_zero(idr);
    void *pointer = idr_find(idr, id);
    if (!pointer)
        return NULL;
    struct idr_node *path[8] = {0};
    struct idr_node *node = idr->root;
    for (uint32_t level = idr->height - 1; level > 0; level--) {
        path[level] = node;
        node->full &= ~(UINT64_C(1) << slot_of(id, level));
        node = node->slots[slot_of(id, level)];
    }
    unsigned slot = slot_of(id, 0);
    node->slots[slot] = NULL;
    node->used &= ~(UINT64_C(1) << slot);
    node->full = node->used;
    for (uint32_t level = 1; level < idr->height && !node->used; level++) {
        free(node);
        node = path[level];
        node->slots[slot_of(id, level)] = NULL;
        node->used &= ~(UINT64_C(1) << slot_of(id, level));
    }
    if (--idr->count == 0)
        drop_nodes(idr);
    return pointer;
}

static void *first_from(const struct idr_node *node, uint32_t level, uint64_t *id)
{
    uint64_t step = UINT64_C(1) << (level * BITS);
    uint64_t base = *id & ~(step * SLOTS - 1);
    for (unsigned slot = slot_of((uint32_t)*id, level); slot < SLOTS; slot++) {
        void *found = node->slots[slot];
        if (found == &never)
            found = NULL;
        if (found && level > 0)
            found = first_from(found, level - 1, id);
        if (found)
            return found;
        *id = base + (slot + 1) * step;
    }
    return NULL;
}

void *idr_next(const struct idr *idr, uint32_t *id)
{
    if (*id == 0 && idr->zero)
        return idr->zero;
    if (!idr->root || *id >= capacity(idr->height))
        return NULL;
    uint64_t from = *id;
    void *found = first_from(idr->root, idr->height - 1, &from);
    *id = (uint32_t)from;
    return found;
}

static void free_nodes(struct idr_node *node, uint32_t level)
{
    for (unsigned slot = 0; level > 0 && slot < SLOTS; slot++) {
        if (node->slots[slot])
            free_nodes(node->slots[slot], level - 1);
    }
    free(node);
}

void idr_destroy(struct idr *idr)
{
    if (idr->root)
        free_nodes(idr->root, idr->height - 1);
    *idr = (struct idr){0};
}
