#pragma once
/* The two tables of a device that find an object by a number: chained, doubled when full. dev->lock. */
#include "core.h"

enum bo_table_kind {
    BY_INODE,
    BY_OFFSET,
};

/* 0 or -ENOMEM. The key is read from the bo. */
int bo_table_add(struct bo_table **table, enum bo_table_kind kind, struct bo *bo);
void bo_table_remove(struct bo_table *table, enum bo_table_kind kind, struct bo *bo);
struct bo *bo_table_find(const struct bo_table *table, enum bo_table_kind kind, uint64_t key, uint64_t inode_dev);
