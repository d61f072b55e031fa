/* Random batches: whatever a program writes into one, the streamer ends it, within the memory it was given. */
#include "streamer_memory.h"

#include "xe_uapi.h"

static struct streamer streamer;
static unsigned long long seed = 0x9e3779b97f4a7c15u;
static unsigned polls;

static uint32_t any(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 16);
}

/* Addresses mostly near the window's pages, their ends and the ends of everything; sizes mostly small. */
static uint64_t any_address(void)
{
    switch (any() % 8) {
    case 0:
        return (uint64_t)any() << 32 | any();
    case 1:
        return UINT64_MAX - any() % 64;
    case 2:
        return BASE + (uint64_t)PAGES * PAGE - any() % 64;
    case 3:
        return VA(READ_ONLY_PAGE, 0) - 32 + any() % 64;
    case 4:
        return VA(0, 0) + any() % 4096 * 4ull;
    default:
        return VA(any() % PAGES, any() % PAGE);
    }
}

static uint32_t any_field(void)
{
    switch (any() % 4) {
    case 0:
        return any();
    case 1:
        return 1u << any() % 32;
    default:
        return any() % 64;
    }
}

static uint32_t any_header(void)
{
    static const uint32_t heads[] = {
        MI(0x00, 0),  MI(0x01, 0),  MI(0x05, 0), MI(0x09, 0), MI(0x0a, 0), MI(0x0c, 0),   MI(0x1a, 3),  MI(0x1c, 3),
        MI(0x20, 2),  MI(0x20, 3),  MI(0x22, 1), MI(0x24, 2), MI(0x26, 3), MI(0x29, 2),   MI(0x2a, 1),  MI(0x2e, 3),
        MI(0x2f, 1),  MI(0x2f, 9),  MI(0x31, 1), MI(0x36, 2), MI(0x39, 1), BLT(0x41, 20), BLT(0x42, 8), BLT(0x44, 14),
        BLT(0x5a, 8), BLT(0x5b, 5), 0x7a000004,  0x61010014,  0x78520003,  0x61090001,
    };
    uint32_t header = heads[any() % (sizeof(heads) / sizeof(*heads))];
    if (any() % 3 == 0)
        header ^= 1u << any() % 23; /* a flag, or another length */
    return any() % 64 ? header : any();
}

static enum streamer_result poll_few(void *owner)
{
    (void)owner;
    return ++polls > 200 ? STREAMER_TIMEOUT : STREAMER_RUNNING;
}

static void relax_not(void *owner, unsigned microseconds)
{
    (void)owner;
    (void)microseconds;
}

int main(void)
{
    unsigned results[STREAMER_REFUSED + 1] = {0};
    streamer_init(&streamer, DRM_XE_ENGINE_CLASS_COPY, 0);
    struct test_memory *memory = test_memory_new(&streamer);
    streamer.control = (struct streamer_control){.poll = poll_few, .relax = relax_not};
    for (int round = 0; round < 50000; round++) {
        uint32_t batch[256];
        for (unsigned i = 0; i < sizeof(batch) / sizeof(*batch);) {
            batch[i++] = any_header();
            for (unsigned length = any() % 12; length && i + 2 < sizeof(batch) / sizeof(*batch); length--) {
                uint64_t address = any_address();
                if (any() % 2) {
                    batch[i++] = LOW(address);
                    batch[i++] = HIGH(address);
                } else {
                    batch[i++] = any_field();
                }
            }
        }
        test_poke(memory, BATCH, batch, sizeof(batch));
        polls = 0;
        unsigned before = memory->releases;
        enum streamer_result result = streamer_run(&streamer, BATCH + any() % 16 * 4);
        CHECK(result > STREAMER_RUNNING && result <= STREAMER_REFUSED);
        CHECK(result != STREAMER_REFUSED || streamer.reason[0]);
        CHECK(memory->releases > before);
        results[result]++;
    }
    /* It reached every kind of end. */
    CHECK(results[STREAMER_DONE] && results[STREAMER_TIMEOUT] && results[STREAMER_FAULT] && results[STREAMER_REFUSED]);
    test_memory_free(memory);
    return 0;
}
