#include "bo_table.h"

#include <errno.h>
#include <stdlib.h>

struct bo_table {
    size_t size; /* a power of two */
    size_t count;
    struct bo *buckets[];
};

static struct bo **next_of(enum bo_table_kind kind, struct bo *bo)
{
    return kind == BY_INODE ? &bo->next_by_inode : &bo->next_by_offset;
}

static uint64_t key_of(enum bo_table_kind kind, const struct bo *bo)
{
    return kind == BY_INODE ? bo->inode : bo->mmap_offset;
}

static size_t bucket_of(const struct bo_table *table, uint64_t key)
{
    return key * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (table->size - 1);
}

static struct bo_table *resized(struct bo_table *old, enum bo_table_kind kind, size_t size)
{
    struct bo_table *table = calloc(1, sizeof(*table) + size * sizeof(*table->buckets));
    if (!table)
        return NULL;
    table->size = size;
    for (size_t i = 0; old && i < old->size; i++) {
        for (struct bo *bo = old->buckets[i], *next; bo; bo = next) {
            next = *next_of(kind, bo);
            struct bo **bucket = &table->buckets[bucket_of(table, key_of(kind, bo))];
            *next_of(kind, bo) = *bucket;
            *bucket = bo;
        }
    }
    table->count = old ? old->count : 0;
    free(old);
    return table;
}

int bo_table_add(struct bo_table **table, enum bo_table_kind kind, struct bo *bo)
{
    if (!*table || (*table)->count >= (*table)->size) {
        struct bo_table *larger = resized(*table, kind, *table ? (*table)->size * 2 : 64);
        if (larger)
            *table = larger;
        else if (!*table)
            return -ENOMEM;
    }
    struct bo **bucket = &(*table)->buckets[bucket_of(*table, key_of(kind, bo))];
    *next_of(kind, bo) = *bucket;
    *bucket = bo;
    (*table)->count++;
    return 0;
}

void bo_table_remove(struct bo_table *table, enum bo_table_kind kind, struct bo *bo)
{
    struct bo **link = &table->buckets[bucket_of(table, key_of(kind, bo))];
    while (*link != bo)
        link = next_of(kind, *link);
    *link = *next_of(kind, bo);
    table->count--;
}

struct bo *bo_table_find(const struct bo_table *table, enum bo_table_kind kind, uint64_t key, uint64_t inode_dev)
{
    struct bo *bo = table ? table->buckets[bucket_of(table, key)] : NULL;
    while (bo && (key_of(kind, bo) != key || (kind == BY_INODE && bo->inode_dev != inode_dev)))
        bo = *next_of(kind, bo);
    return bo;
}
