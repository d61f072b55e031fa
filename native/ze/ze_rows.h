#pragma once
/* Disjoint spans of addresses in order, each with what it stands for. */
#include <stddef.h>
#include <stdint.h>

struct row {
    uint64_t start;
    uint64_t end;
    /* Of a mapping: the number of its object, where in it the mapping starts, and 1 for read-only. */
    uint64_t object;
    uint64_t offset;
    uint32_t access;
    void *context;
    /* Of an object its device, of a mapping the handle of its object. */
    void *device;
};

struct rows {
    struct row *at;
    size_t count;
    size_t room;
};

/* Index of the first row that ends after an address; count if there is none. */
size_t rows_place(const struct rows *rows, uint64_t address);

/* The row that contains an address, or null; until the next change. */
struct row *rows_find(const struct rows *rows, uint64_t address);

/* Adds a row where none is; 0 or -ENOMEM. */
int rows_add(struct rows *rows, const struct row *row);

/* Takes [start, end) out of all rows; what was taken is appended to removed, if that is not null. On -ENOMEM nothing
 * has changed. */
int rows_cut(struct rows *rows, uint64_t start, uint64_t end, struct rows *removed);

void rows_clear(struct rows *rows);
