/* Batches of GPU commands: whatever a program writes into one, the streamer ends it within the memory it was given. */
#include "fuzz.h"
#include "streamer_memory.h"

#include "xe_uapi.h"

static struct streamer streamer;
static struct test_memory *memory;
static unsigned polls;

/* Mostly near the window's pages, their ends and the ends of everything. */
static uint64_t take_address(struct input *input)
{
    switch (take8(input) % 8) {
    case 0:
        return take64(input);
    case 1:
        return UINT64_MAX - take8(input);
    case 2:
        return BASE + (uint64_t)PAGES * PAGE - take8(input);
    case 3:
        return VA(READ_ONLY_PAGE, 0) - 128 + take8(input);
    case 4:
        return VA(0, 0) + take16(input) % 4096 * 4ull;
    default:
        return VA(take16(input) % PAGES, take16(input) % PAGE);
    }
}

static uint32_t take_header(struct input *input, uint8_t which)
{
    static const uint32_t heads[] = {
        MI(0x00, 0),  MI(0x01, 0),  MI(0x05, 0), MI(0x09, 0), MI(0x0a, 0), MI(0x0c, 0),   MI(0x1a, 3),  MI(0x1c, 3),
        MI(0x20, 2),  MI(0x20, 3),  MI(0x22, 1), MI(0x24, 2), MI(0x26, 3), MI(0x29, 2),   MI(0x2a, 1),  MI(0x2e, 3),
        MI(0x2f, 1),  MI(0x2f, 9),  MI(0x31, 1), MI(0x36, 2), MI(0x39, 1), BLT(0x41, 20), BLT(0x42, 8), BLT(0x44, 14),
        BLT(0x5a, 8), BLT(0x5b, 5), 0x7a000004,  0x61010014,  0x78520003,  0x61090001,
    };
    uint32_t header = heads[which % (sizeof(heads) / sizeof(*heads))];
    uint8_t flip = take8(input);

    return flip & 0x80 ? header ^ 1u << flip % 32 ^ (flip & 0x40 ? 1u << take8(input) % 32 : 0) : header;
}

/* Dwords that a batch is made of: headers, addresses, small numbers, anything. */
static size_t write_batch(struct input *input, uint32_t *batch, size_t room)
{
    size_t used = 0;

    while (input->left && used + 2 < room) {
        uint8_t what = take8(input);

        if (what < 0x80) {
            batch[used++] = take_header(input, what);
        } else if (what < 0xc0) {
            uint64_t address = take_address(input);

            batch[used++] = LOW(address);
            batch[used++] = HIGH(address);
        } else if (what < 0xe0) {
            batch[used++] = take8(input);
        } else {
            batch[used++] = take32(input);
        }
    }
    return used;
}

static enum streamer_result poll_few(void *owner)
{
    (void)owner;
    return ++polls > 4 ? STREAMER_TIMEOUT : STREAMER_RUNNING;
}

static void relax_not(void *owner, unsigned microseconds)
{
    (void)owner;
    (void)microseconds;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {.bytes = data, .left = size};
    uint32_t batch[1024];
    uint8_t how = take8(&input);
    size_t used = write_batch(&input, batch, sizeof(batch) / sizeof(*batch));
    enum streamer_result result;
    unsigned before;

    if (!memory) {
        streamer_init(&streamer, DRM_XE_ENGINE_CLASS_COPY, 0);
        memory = test_memory_new(&streamer);
    }
    streamer_init(&streamer, how % 5, 0);
    streamer.memory = (struct gpu_memory){.span = test_span, .release = test_release, .owner = memory};
    streamer.control = (struct streamer_control){.poll = poll_few, .relax = relax_not};
    /* The same every time; a batch that strays into a page ends there soon. */
    memset(memory->pages, 0, (size_t)PAGES * PAGE);
    for (unsigned page = 0; page < PAGES; page++)
        memcpy(memory->pages + (size_t)page * PAGE + 256, &(uint32_t){BATCH_END}, 4);
    test_poke(memory, VA(1, 0), &(uint32_t){BATCH_END}, 4);
    test_poke(memory, BATCH, batch, used * sizeof(*batch));
    for (int run = 0; run < 2; run++) {
        polls = 0;
        before = memory->releases;
        result = streamer_run(&streamer, BATCH + (run ? how / 5 * 4 : 0));
        REQUIRE(result > STREAMER_RUNNING && result <= STREAMER_REFUSED);
        REQUIRE(result != STREAMER_REFUSED || streamer.reason[0]);
        REQUIRE(memory->releases > before);
    }
    return 0;
}
