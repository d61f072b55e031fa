#include "ze_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t rows_place(const struct rows *rows, uint64_t address)
{
    size_t low = 0, high = rows->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (rows->at[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct row *rows_find(const struct rows *rows, uint64_t address)
{
    size_t index = rows_place(rows, address);

    return index < rows->count && rows->at[index].start <= address ? &rows->at[index] : NULL;
}

static int make_room(struct rows *rows, size_t more)
{
    size_t room = rows->room ? rows->room : 32;
    struct row *at;

    while (room < rows->count + more)
        room *= 2;
    if (room == rows->room)
        return 0;
    at = realloc(rows->at, room * sizeof(*at));
    if (!at)
        return -ENOMEM;
    rows->at = at;
    rows->room = room;
    return 0;
}

int rows_add(struct rows *rows, const struct row *row)
{
    size_t index;

    if (make_room(rows, 1) < 0)
        return -ENOMEM;
    index = rows_place(rows, row->start);
    memmove(&rows->at[index + 1], &rows->at[index], (rows->count - index) * sizeof(*row));
    rows->at[index] = *row;
    rows->count++;
    return 0;
}

int rows_cut(struct rows *rows, uint64_t start, uint64_t end, struct rows *removed)
{
    size_t first = rows_place(rows, start), last = first, kept = 0;
    struct row rest[2];

    while (last < rows->count && rows->at[last].start < end)
        last++;
    if (first == last)
        return 0;
    if (make_room(rows, 1) < 0 || (removed && make_room(removed, last - first) < 0))
        return -ENOMEM;
    if (rows->at[first].start < start) {
        rest[kept] = rows->at[first];
        rest[kept++].end = start;
    }
    if (rows->at[last - 1].end > end) {
        rest[kept] = rows->at[last - 1];
        rest[kept].offset += end - rest[kept].start;
        rest[kept++].start = end;
    }
    for (size_t i = first; removed && i < last; i++) {
        struct row row = rows->at[i];

        if (row.start < start) {
            row.offset += start - row.start;
            row.start = start;
        }
        row.end = row.end < end ? row.end : end;
        removed->at[removed->count++] = row;
    }
    memmove(&rows->at[first + kept], &rows->at[last], (rows->count - last) * sizeof(*rest));
    memcpy(&rows->at[first], rest, kept * sizeof(*rest));
    rows->count = rows->count - (last - first) + kept;
    return 0;
}

void rows_clear(struct rows *rows)
{
    free(rows->at);
    *rows = (struct rows){0};
}
