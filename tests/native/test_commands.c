/* Every command against the bytes, registers and errors expected of it. */
#include "streamer_memory.h"

#include "xe_uapi.h"

static struct streamer streamer;
static struct test_memory *memory;
#define DATA VA(9, 0xff8) /* qwords from here on lie on two pages */

#define EXPECT_DONE(...) CHECK_EQUAL(RUN(&streamer, __VA_ARGS__, BATCH_END), STREAMER_DONE)
#define EXPECT_REFUSED(...) CHECK_EQUAL(RUN(&streamer, __VA_ARGS__, BATCH_END), STREAMER_REFUSED)

static void test_stores(void)
{
    EXPECT_DONE(MI(0x20, 2), ADDRESS(DATA), 0xc0ffee);
    CHECK_EQUAL(test_peek64(memory, DATA), 0xc0ffee);
    EXPECT_DONE(MI(0x20, 3) | 1u << 21, ADDRESS(DATA), 0x11111111, 0x22222222);
    CHECK_EQUAL(test_peek64(memory, DATA), 0x2222222211111111);
    EXPECT_DONE(MI(0x20, 5), ADDRESS(DATA), 1, 2, 3, 4);
    CHECK_EQUAL(test_peek64(memory, DATA), 0x200000001);
    CHECK_EQUAL(test_peek64(memory, DATA + 8), 0x400000003);
    EXPECT_DONE(MI(0x20, 5) | 1u << 21, ADDRESS(DATA), 5, 6, 7, 8);
    CHECK_EQUAL(test_peek64(memory, DATA + 8), 0x800000007);
    /* Canonical addresses: the bits above the address space do not count. */
    EXPECT_DONE(MI(0x20, 2), LOW(DATA), 0xffff0000 | HIGH(DATA), 77);
    CHECK_EQUAL(test_peek32(memory, DATA), 77);
    EXPECT_DONE(MI(0x2e, 3), ADDRESS(DATA + 16), ADDRESS(DATA + 8));
    CHECK_EQUAL(test_peek64(memory, DATA + 16), 7);
}

static uint64_t atomic(unsigned operation, uint64_t memory_value, uint64_t first, uint64_t second)
{
    test_poke64(memory, VA(9, 0), memory_value);
    EXPECT_DONE(MI(0x2f, 9) | 1u << 18 | 1u << 16 | operation << 8, ADDRESS(VA(9, 0)), LOW(first), LOW(second),
                HIGH(first), HIGH(second), 0, 0, 0, 0);
    CHECK_EQUAL(streamer_gpr(&streamer, 4), operation == 0x2f  ? memory_value - 1
                                            : operation == 0xf ? (uint32_t)(memory_value - 1)
                                            : operation & 0x20 ? memory_value
                                                               : (uint32_t)memory_value);
    return test_peek64(memory, VA(9, 0));
}

static void test_atomics(void)
{
    const uint64_t old = 0x8000000000000005, one = 3, two = 0x1234567890;
    const uint64_t wide[16] = {0,         old & one, old | one, old ^ one, one, old + 1, old - 1, old + one,
                               old - one, one - old, one,       old,       old, one,     old,     old - 1};
    for (unsigned operation = 1; operation < 16; operation++)
        CHECK_EQUAL(atomic(operation | 0x20, old, one, two), wide[operation]);
    CHECK_EQUAL(atomic(0x2e, old, old, two), two);
    /* The narrow ones leave the upper dword alone and are signed in 32 bits. */
    CHECK_EQUAL(atomic(0x07, 0x7fffffffff, 1, 0), 0x7f00000000);
    CHECK_EQUAL(atomic(0x0a, 0x1280000000, 5, 0), 0x1200000005);
    CHECK_EQUAL(atomic(0x0c, 0x1280000000, 5, 0), 0x1280000000);
    CHECK_EQUAL(atomic(0x0b, 0x1280000000, 5, 0), 0x1280000000);
    CHECK_EQUAL(atomic(0x0e, 0x1200000007, 7, 9), 0x1200000009);
    CHECK_EQUAL(atomic(0x0f, 0x1200000000, 0, 0), 0x12ffffffff);
    /* Without inline data the operands are in the first two registers. */
    streamer_set_gpr(&streamer, 0, 40);
    test_poke64(memory, VA(9, 0), 2);
    EXPECT_DONE(MI(0x2f, 1) | 7u << 8, ADDRESS(VA(9, 0)));
    CHECK_EQUAL(test_peek64(memory, VA(9, 0)), 42);
    EXPECT_REFUSED(MI(0x2f, 9) | 1u << 18 | 0x4eu << 8, ADDRESS(VA(9, 0)), 0, 0, 0, 0, 0, 0, 0, 0);
    EXPECT_REFUSED(MI(0x2f, 1) | 0x25u << 8, ADDRESS(VA(9, 4)));
    CHECK_EQUAL(RUN(&streamer, MI(0x2f, 1) | 5u << 8, ADDRESS(VA(READ_ONLY_PAGE, 0))), STREAMER_FAULT);
    CHECK_EQUAL(streamer.fault.access, GPU_ATOMIC);
    CHECK_EQUAL(RUN(&streamer, MI(0x2f, 1) | 5u << 8, ADDRESS(VA(NULL_PAGE, 0)), BATCH_END), STREAMER_DONE);
}

static void test_post_sync(void)
{
    test_poke64(memory, VA(9, 0), UINT64_MAX);
    EXPECT_DONE(MI(0x26, 3), ADDRESS(VA(9, 0)), 1, 2);
    CHECK_EQUAL(test_peek64(memory, VA(9, 0)), UINT64_MAX);
    EXPECT_DONE(MI(0x26, 3) | 1u << 14, ADDRESS(VA(9, 0)), 1, 2);
    CHECK_EQUAL(test_peek64(memory, VA(9, 0)), 0x200000001);
    EXPECT_DONE(MI(0x26, 2) | 1u << 14, ADDRESS(VA(9, 0)), 9);
    CHECK_EQUAL(test_peek64(memory, VA(9, 0)), 0x200000009);
    EXPECT_DONE(MI(0x26, 3) | 1u << 14 | 1u << 21, ADDRESS(VA(9, 0)), 7, 7);
    CHECK_EQUAL(test_peek64(memory, VA(9, 0)), 0x200000009);
    uint64_t before = streamer_ticks();
    EXPECT_DONE(MI(0x26, 3) | 3u << 14, ADDRESS(VA(9, 0)), 0, 0);
    CHECK(test_peek64(memory, VA(9, 0)) >= before && test_peek64(memory, VA(9, 0)) <= streamer_ticks());
    EXPECT_REFUSED(MI(0x26, 3) | 2u << 14, ADDRESS(VA(9, 0)), 0, 0);

    EXPECT_DONE(0x7a000004, 1u << 20, ADDRESS(VA(9, 8)), 5, 6);
    CHECK_EQUAL(test_peek64(memory, VA(9, 8)), 0);
    EXPECT_DONE(0x7a000004, 1u << 14, ADDRESS(VA(9, 8)), 5, 6);
    CHECK_EQUAL(test_peek64(memory, VA(9, 8)), 0x600000005);
    EXPECT_DONE(0x7a000004, 3u << 14, ADDRESS(VA(9, 8)), 0, 0);
    CHECK(test_peek64(memory, VA(9, 8)) >= before);
    EXPECT_DONE(0x7a000004, 2u << 14, ADDRESS(VA(9, 8)), 1, 1);
    CHECK_EQUAL(test_peek64(memory, VA(9, 8)), 0);
    EXPECT_DONE(0x7a000004, 1u << 23, 0x2600, 0, 321, 0);
    CHECK_EQUAL(streamer_gpr(&streamer, 0), 321);
}

static void test_registers(void)
{
    /* The same register under its render address, this engine's own address and relative to the engine. */
    EXPECT_DONE(MI(0x22, 3), 0x2600, 1, 0x2604, 2);
    CHECK_EQUAL(streamer_gpr(&streamer, 0), 0x200000001);
    EXPECT_DONE(MI(0x22, 1), 0x22608, 3, MI(0x22, 1) | 1u << 19, 0x60c, 4);
    CHECK_EQUAL(streamer_gpr(&streamer, 1), 0x400000003);
    EXPECT_DONE(MI(0x2a, 1) | 1u << 18, 0x608, 0x22610);
    CHECK_EQUAL(streamer_gpr(&streamer, 2), 3);
    EXPECT_DONE(MI(0x24, 2) | 1u << 19, 0x60c, ADDRESS(DATA), MI(0x29, 2), 0x2618, ADDRESS(DATA));
    CHECK_EQUAL(test_peek32(memory, DATA), 4);
    CHECK_EQUAL(streamer_gpr(&streamer, 3), 4);
    EXPECT_DONE(MI(0x22, 1), 0xb118, 0x55, MI(0x24, 2), 0xb118, ADDRESS(DATA));
    CHECK_EQUAL(test_peek32(memory, DATA), 0x55);
    EXPECT_DONE(MI(0x24, 2), 0xb11c, ADDRESS(DATA));
    CHECK_EQUAL(test_peek32(memory, DATA), 0);
    uint64_t before = streamer_ticks();
    EXPECT_DONE(MI(0x24, 2), 0x22358, ADDRESS(VA(9, 0)), MI(0x24, 2), 0x2235c, ADDRESS(VA(9, 4)));
    CHECK(test_peek64(memory, VA(9, 0)) - before < 19200000);
    EXPECT_DONE(MI(0x24, 2) | 1u << 19, 0x3a8, ADDRESS(VA(9, 0)));
    CHECK(test_peek32(memory, VA(9, 0)) < 19200000);
    /* A predicated store follows the predicate's result. */
    test_poke64(memory, DATA, 8);
    EXPECT_DONE(MI(0x22, 1), 0x2418, 0, MI(0x24, 2) | 1u << 21, 0x2600, ADDRESS(DATA));
    CHECK_EQUAL(test_peek32(memory, DATA), 8);
    for (uint32_t i = 0; i < STREAMER_FOREIGN_REGISTERS; i++)
        CHECK_EQUAL(RUN(&streamer, MI(0x22, 1), 0x40000 + i * 4, 1, BATCH_END),
                    i < STREAMER_FOREIGN_REGISTERS - 1 ? STREAMER_DONE : STREAMER_REFUSED);
    streamer.foreign_count = 0;
}

#define ALU(operation, first, second) ((uint32_t)(operation) << 20 | (uint32_t)(first) << 10 | (uint32_t)(second))

static uint64_t alu(unsigned operation, uint64_t first, uint64_t second, unsigned from)
{
    streamer_set_gpr(&streamer, 0, first);
    streamer_set_gpr(&streamer, 1, second);
    EXPECT_DONE(MI(0x1a, 3), ALU(0x080, 0x20, 0), ALU(0x080, 0x21, 1), ALU(operation, 0, 0), ALU(0x180, 2, from));
    return streamer_gpr(&streamer, 2);
}

static void test_math(void)
{
    const uint64_t high = UINT64_C(1) << 63;
    CHECK_EQUAL(alu(0x100, 3, 4, 0x31), 7);
    CHECK_EQUAL(alu(0x100, UINT64_MAX, 1, 0x33), UINT64_MAX);
    CHECK_EQUAL(alu(0x100, UINT64_MAX, 1, 0x32), UINT64_MAX);
    CHECK_EQUAL(alu(0x101, 3, 4, 0x31), UINT64_MAX);
    CHECK_EQUAL(alu(0x101, 3, 4, 0x33), UINT64_MAX);
    CHECK_EQUAL(alu(0x101, 4, 4, 0x32), UINT64_MAX);
    CHECK_EQUAL(alu(0x101, 4, 3, 0x33), 0);
    CHECK_EQUAL(alu(0x102, 12, 10, 0x31), 8);
    CHECK_EQUAL(alu(0x103, 12, 10, 0x31), 14);
    CHECK_EQUAL(alu(0x104, 12, 10, 0x31), 6);
    CHECK_EQUAL(alu(0x105, 3, 62, 0x31), 3ull << 62);
    CHECK_EQUAL(alu(0x105, 3, 64, 0x31), 0);
    CHECK_EQUAL(alu(0x106, high, 63, 0x31), 1);
    CHECK_EQUAL(alu(0x107, high, 63, 0x31), UINT64_MAX);
    EXPECT_DONE(MI(0x1a, 5), ALU(0x480, 0x20, 1), ALU(0x481, 0x21, 0), ALU(0x102, 0, 0), ALU(0x180, 3, 0x31),
                ALU(0x580, 4, 0x31), ALU(0x000, 0, 0));
    CHECK_EQUAL(streamer_gpr(&streamer, 3), ~streamer_gpr(&streamer, 1));
    CHECK_EQUAL(streamer_gpr(&streamer, 4), streamer_gpr(&streamer, 1));
    streamer_set_gpr(&streamer, 5, VA(9, 0));
    streamer_set_gpr(&streamer, 6, 0xabcdef);
    EXPECT_DONE(MI(0x1a, 7), ALU(0x080, 0x20, 5), ALU(0x081, 0x21, 0), ALU(0x100, 0, 0), ALU(0x181, 0x31, 6),
                ALU(0x002, 0, 0), ALU(0x082, 7, 0x31), ALU(0x001, 0, 0), ALU(0, 0, 0));
    CHECK_EQUAL(test_peek64(memory, VA(9, 0)), 0xabcdef);
    CHECK_EQUAL(streamer_gpr(&streamer, 7), 0xabcdef);
    EXPECT_REFUSED(MI(0x1a, 0), ALU(0x777, 0, 0), 0);
}

static void test_predicates(void)
{
    EXPECT_DONE(MI(0x22, 7), 0x2400, 5, 0x2404, 0, 0x2408, 5, 0x240c, 0, MI(0x0c, 2u << 6 | 2), MI(0x24, 2), 0x2418,
                ADDRESS(DATA));
    CHECK_EQUAL(test_peek32(memory, DATA), 1);
    EXPECT_DONE(MI(0x0c, 3u << 6 | 0), MI(0x24, 2), 0x2418, ADDRESS(DATA));
    CHECK_EQUAL(test_peek32(memory, DATA), 0);
    /* Result is 0 now: stores under "on result clear" vanish until the predicate is lifted. */
    EXPECT_DONE(MI(0x01, 3), MI(0x20, 2), ADDRESS(DATA), 5, MI(0x01, 0), MI(0x20, 2), ADDRESS(DATA + 4), 6);
    CHECK_EQUAL(test_peek64(memory, DATA), 0x600000000);
    EXPECT_DONE(MI(0x01, 4), MI(0x20, 2), ADDRESS(DATA), 5, MI(0x01, 0));
    CHECK_EQUAL(test_peek32(memory, DATA), 5);
    EXPECT_DONE(MI(0x22, 1), 0x23bc, 1, MI(0x01, 2), MI(0x20, 2), ADDRESS(DATA), 9, MI(0x01, 1), MI(0x20, 2),
                ADDRESS(DATA + 4), 9);
    CHECK_EQUAL(test_peek64(memory, DATA), 0x900000005);
    EXPECT_DONE(MI(0x01, 15), MI(0x20, 2), ADDRESS(DATA), 1);
    CHECK_EQUAL(test_peek32(memory, DATA), 5);
    EXPECT_REFUSED(MI(0x01, 7));
}

static void test_flow(void)
{
    /* First level calls a second, which chains to a third batch, which returns to the first. */
    const uint32_t second[] = {MI(0x20, 2), ADDRESS(DATA), 2, MI(0x31, 1), ADDRESS(VA(3, 0))};
    const uint32_t third[] = {MI(0x20, 2), ADDRESS(DATA + 4), 3, BATCH_END};
    test_poke(memory, VA(2, 0xffc), second, sizeof(second));
    test_poke(memory, VA(3, 0x800), third, sizeof(third));
    const uint32_t hop[] = {MI(0x31, 1) | 1u << 8, ADDRESS(VA(3, 0x800))};
    test_poke(memory, VA(3, 0), hop, sizeof(hop));
    const uint32_t second_elsewhere[] = {MI(0x31, 1), ADDRESS(VA(5, 0))};
    test_poke(memory, VA(4, 0), second_elsewhere, sizeof(second_elsewhere));
    test_poke(memory, VA(5, 0), second, 16);
    test_poke(memory, VA(5, 16), hop, sizeof(hop));
    EXPECT_DONE(MI(0x31, 1) | 1u << 22, ADDRESS(VA(4, 0)), MI(0x20, 2), ADDRESS(DATA + 8), 1, MI(0x05, 0), MI(0x08, 1),
                MI(0x09, 3), MI(0x02, 0), MI(0x1b, 0), 0, 0x61090001, 0, 0);
    CHECK_EQUAL(test_peek64(memory, DATA), 0x300000002);
    CHECK_EQUAL(test_peek32(memory, DATA + 8), 1);
    /* Indirect: the target is in the first register. */
    streamer_set_gpr(&streamer, 0, VA(3, 0x800));
    test_poke64(memory, DATA, 0);
    CHECK_EQUAL(RUN(&streamer, MI(0x31, 1) | 1u << 18, 0, 0), STREAMER_DONE);
    CHECK_EQUAL(test_peek64(memory, DATA), 0x300000000);
    /* A batch that calls itself for ever. */
    CHECK_EQUAL(RUN(&streamer, MI(0x31, 1) | 1u << 22, ADDRESS(BATCH)), STREAMER_REFUSED);
    /* Counts up in a loop until memory reaches 20000; the end comes back to nowhere. */
    test_poke64(memory, VA(9, 0), 0);
    CHECK_EQUAL(RUN(&streamer, MI(0x2f, 1) | 5u << 8, ADDRESS(VA(9, 0)), MI(0x36, 2) | 1u << 21 | 5u << 12, 20000,
                    ADDRESS(VA(9, 0)), MI(0x31, 1), ADDRESS(BATCH)),
                STREAMER_DONE);
    CHECK_EQUAL(test_peek32(memory, VA(9, 0)), 20000);
    for (unsigned operation = 0; operation < 8; operation++)
        for (uint32_t value = 4; value < 7; value++) {
            test_poke64(memory, VA(9, 0), value);
            test_poke64(memory, VA(9, 8), 0);
            EXPECT_DONE(MI(0x36, 2) | 1u << 21 | operation << 12, 5, ADDRESS(VA(9, 0)), MI(0x20, 2), ADDRESS(VA(9, 8)),
                        1);
            const bool goes_on[8] = {value > 5, value >= 5, value < 5, value <= 5, value == 5, value != 5};
            CHECK_EQUAL(test_peek32(memory, VA(9, 8)), goes_on[operation]);
        }
    /* Masked comparison: the mask follows the value in memory. */
    test_poke64(memory, VA(9, 0), 0x000000ffffffff05);
    test_poke64(memory, VA(9, 8), 0);
    EXPECT_DONE(MI(0x36, 2) | 1u << 21 | 4u << 12, 5, ADDRESS(VA(9, 0)), MI(0x20, 2), ADDRESS(VA(9, 8)), 2);
    CHECK_EQUAL(test_peek32(memory, VA(9, 8)), 0);
    EXPECT_DONE(MI(0x36, 2) | 1u << 21 | 1u << 19 | 4u << 12, 5, ADDRESS(VA(9, 0)), MI(0x20, 2), ADDRESS(VA(9, 8)), 2);
    CHECK_EQUAL(test_peek32(memory, VA(9, 8)), 2);
}

static void test_refusals(void)
{
    EXPECT_REFUSED(0x72080026, 0, 0); /* COMPUTE_WALKER */
    CHECK(strstr(streamer.reason, "COMPUTE_WALKER"));
    EXPECT_REFUSED(0x7b000005, 0, 0); /* 3DPRIMITIVE */
    EXPECT_REFUSED(0x20000000);
    EXPECT_REFUSED(MI(0x3f, 0));
    EXPECT_REFUSED(BLT(0x48, 3), 0, 0, 0, 0);
    EXPECT_REFUSED(MI(0x31, 0), 0, 0); /* too short for an address */
    EXPECT_REFUSED(MI(0x09, 1u << 17));
    EXPECT_REFUSED(0x78520003, 1u << 30, 0, 0, 0);
    EXPECT_DONE(0x78520003, 0, 0, 0, 0, 0x69040000, 0x7803000e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

static void test_faults(void)
{
    CHECK_EQUAL(RUN(&streamer, MI(0x20, 3) | 1u << 21, ADDRESS(VA(READ_ONLY_PAGE, 8)), 1, 2), STREAMER_FAULT);
    CHECK_EQUAL(streamer.fault.address, VA(READ_ONLY_PAGE, 8));
    CHECK_EQUAL(streamer.fault.type, GPU_FAULT_WRITE);
    CHECK_EQUAL(streamer.fault.access, GPU_WRITE);
    CHECK_EQUAL(RUN(&streamer, MI(0x29, 2), 0x2600, ADDRESS(VA(HOLE_PAGE, 4))), STREAMER_FAULT);
    CHECK_EQUAL(streamer.fault.type, GPU_FAULT_NOT_PRESENT);
    CHECK_EQUAL(streamer.fault.access, GPU_READ);
    CHECK_EQUAL(streamer_run(&streamer, VA(HOLE_PAGE, 0)), STREAMER_FAULT);
    /* Null mappings: writes vanish, reads give zero. */
    EXPECT_DONE(MI(0x20, 2), ADDRESS(VA(NULL_PAGE, 0)), 7, MI(0x29, 2), 0x2600, ADDRESS(VA(NULL_PAGE, 0)));
    CHECK_EQUAL((uint32_t)streamer_gpr(&streamer, 0), 0);
}

int main(void)
{
    streamer_init(&streamer, DRM_XE_ENGINE_CLASS_COPY, 0);
    memory = test_memory_new(&streamer);
    test_stores();
    test_atomics();
    test_post_sync();
    test_registers();
    test_math();
    test_predicates();
    test_flow();
    test_refusals();
    test_faults();
    test_memory_free(memory);
    return 0;
}
