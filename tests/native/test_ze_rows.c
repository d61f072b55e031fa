/* Rows of addresses against a model of single pages; and what is seen, entered and asked for by several threads. */
#include "check.h"
#include "ze_rows.h"
#include "ze_seen.h"
#include "ze_space.h"

#include <pthread.h>
#include <sched.h>

enum { PAGES = 200, STEPS = 20000, THREADS = 4, ROUNDS = 400 };

/* Of each page the object and the page of it that is mapped there; 0 is a hole. */
struct cell {
    uint64_t object, page;
};

static struct cell model[PAGES];

static void check_same(const struct rows *rows)
{
    struct cell found[PAGES] = {0};

    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];

        CHECK(row->start < row->end);
        CHECK(i == 0 || rows->at[i - 1].end <= row->start);
        for (uint64_t page = row->start; page < row->end; page++)
            found[page] = (struct cell){row->object, row->offset + page - row->start};
    }
    CHECK(memcmp(found, model, sizeof(model)) == 0);
}

static void test_model(void)
{
    struct rows rows = {0}, removed = {0};
    unsigned seed = 7;

    for (uint64_t step = 1; step <= STEPS; step++) {
        uint64_t start = (uint64_t)rand_r(&seed) % PAGES, end = start + 1 + (uint64_t)rand_r(&seed) % 20;
        uint64_t gone = 0, held = 0;

        end = end < PAGES ? end : PAGES;
        for (uint64_t page = start; page < end; page++)
            held += model[page].object != 0;
        removed.count = 0;
        CHECK(rows_cut(&rows, start, end, &removed) == 0);
        for (size_t i = 0; i < removed.count; i++) {
            for (uint64_t page = removed.at[i].start; page < removed.at[i].end; page++, gone++) {
                CHECK(page >= start && page < end && model[page].object == removed.at[i].object);
                CHECK(model[page].page == removed.at[i].offset + page - removed.at[i].start);
            }
        }
        CHECK(gone == held);
        memset(&model[start], 0, (end - start) * sizeof(*model));
        if (step % 3) {
            CHECK(rows_add(&rows, &(struct row){.start = start, .end = end, .object = step, .offset = 5}) == 0);
            for (uint64_t page = start; page < end; page++)
                model[page] = (struct cell){step, 5 + page - start};
        }
        check_same(&rows);
        CHECK((rows_find(&rows, start) != NULL) == (model[start].object != 0));
    }
    rows_clear(&rows);
    rows_clear(&removed);
}

static struct ze_table driver;
static struct ze_space *space;

static void *mapping(void *number)
{
    uint64_t base = ((uint64_t)(uintptr_t)number + 1) << 20;
    void *owner = (void *)(uintptr_t)base;

    for (int round = 0; round < ROUNDS; round++) {
        struct seen_removed *removed;

        seen_create((struct row){.start = base, .end = base + 1, .offset = 4096, .context = owner});
        seen_map((struct row){.start = base, .end = base + 4096, .context = owner}, base);
        removed = seen_remove(SEEN_MAPPINGS, base, base + 4096);
        seen_settle(removed, round % 2);
        sched_yield();
        removed = seen_remove(SEEN_OBJECTS, base, base + 1);
        ze_spaces_keep((void *)(uintptr_t)base);
        seen_settle(removed, false);
    }
    return NULL;
}

static void *asking(void *unused)
{
    uint64_t starts[64], ends[64], objects[64], offsets[64], done;
    uint8_t access[64];
    uint32_t result;

    for (int round = 0; round < ROUNDS; round++) {
        struct ze_seen seen = {starts, ends, objects, offsets, access, .room = 64};
        int rc = ze_observe_window(space, 0, UINT64_MAX, &seen);

        CHECK(rc == 0 || rc == -ENXIO);
        if (rc == 0)
            ze_objects_release(space, objects, seen.mappings, &done, &result);
    }
    return unused;
}

static void test_borrowing(void)
{
    uint64_t starts[2], ends[2], objects[2], offsets[2], done;
    uint8_t access[2];
    uint32_t result;
    struct ze_seen seen = {starts, ends, objects, offsets, access, .room = 0};
    void *owner = &seen;
    struct seen_removed *removed;

    space = ze_space_create(&driver, NULL, NULL, "", 0);
    CHECK(space != NULL);
    seen_create((struct row){.start = 16, .end = 17, .offset = 8192, .context = owner});
    seen_map((struct row){.start = 4096, .end = 8192, .access = 1, .context = owner}, 16);
    seen_map((struct row){.start = 8192, .end = 12288, .offset = 4096, .context = owner}, 16);
    CHECK(ze_observe_window(space, 5000, 9000, &seen) == -ENOBUFS);
    CHECK(seen.mappings == 2 && seen.allocations == 0 && seen.reservations == 0);
    CHECK(ze_objects_live(space) == 0);
    seen.room = 2;
    CHECK(ze_observe_window(space, 5000, 9000, &seen) == 0);
    CHECK(objects[0] == objects[1] && ze_objects_live(space) == 1);
    CHECK(starts[0] == 4096 && ends[1] == 12288 && offsets[1] == 4096 && access[0] && !access[1]);
    /* Whoever destroys it takes it away from what is mapped, not from whoever has borrowed it. */
    removed = seen_remove(SEEN_OBJECTS, 16, 17);
    ze_spaces_keep((void *)16);
    seen_settle(removed, false);
    CHECK(ze_observe_window(space, 8192, 8193, &seen) == -ENXIO);
    CHECK(seen.address == 8192);
    seen_create((struct row){.start = 16, .end = 17, .offset = 8192, .context = owner});
    CHECK(ze_observe_window(space, 8192, 8193, &seen) == -ENXIO);
    CHECK(ze_objects_release(space, objects, 2, &done, &result) == 0);
    CHECK(ze_objects_live(space) == 0);
    ze_space_destroy(space);
    seen_clear();
}

static void test_threads(void)
{
    pthread_t threads[2 * THREADS];

    space = ze_space_create(&driver, NULL, NULL, "", 0);
    CHECK(space != NULL);
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, mapping, (void *)i) == 0);
        CHECK(pthread_create(&threads[THREADS + i], NULL, asking, NULL) == 0);
    }
    for (int i = 0; i < 2 * THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(ze_objects_live(space) == 0);
    ze_space_destroy(space);
    seen_clear();
}

int main(void)
{
    test_model();
    test_borrowing();
    test_threads();
    return 0;
}
