/* Commands that decide which command comes next. */
#include "commands.h"

#include <sched.h>

enum {
    COMPARE_SHIFT = 12,
    BATCH_START_SECOND_LEVEL = 1 << 22,
    BATCH_START_INDIRECT = 1 << 18,
    CONDITIONAL_THIS_LEVEL = 1 << 18,
    CONDITIONAL_MASK = 1 << 19,
    CONDITIONAL_COMPARE = 1 << 21,
    SEMAPHORE_REGISTER = 1 << 16,
    SEMAPHORE_INDIRECT = 1 << 17,
    SEMAPHORE_QWORD = 1 << 19,
    /* Registers of MI_PREDICATE and MI_SET_PREDICATE, by their offset in the engine's window. */
    PREDICATE_SRC0 = 0x400,
    PREDICATE_SRC1 = 0x408,
    PREDICATE_DATA = 0x410,
    PREDICATE_RESULT = 0x418,
    PREDICATE_RESULT_2 = 0x3bc,
    /* A loop that goes on is somebody's wait: give the processor away, then sleep between the rounds. */
    LOOPS_FREE = 256,
    LOOPS_YIELDING = 4096,
    LOOP_SLEEP_MIN_US = 50,
    LOOP_SLEEP_MAX_US = 500,
    LOOPS_PER_US = 64, /* so many more loops, one microsecond more each */
    /* A semaphore is polled the more seldom the longer it was waited for: an engine that idles should cost nothing. */
    POLLS_FREE = 64,
    POLL_SLEEP_MIN_US = 4,
    POLL_SLEEP_MAX_US = 500,
    POLL_SLEEP_IDLE_US = 4000,
    POLL_IDLE_SHARE = 128, /* of the time slept so far */
};

/* Encodings 6 and 7 are reserved: never true. */
bool command_compare(unsigned operation, uint64_t left, uint64_t right)
{
    switch (operation & 7) {
    case 0:
        return left > right;
    case 1:
        return left >= right;
    case 2:
        return left < right;
    case 3:
        return left <= right;
    case 4:
        return left == right;
    case 5:
        return left != right;
    default:
        return false;
    }
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static void slow_down(struct streamer *streamer)
{
    streamer->loops++;
    if (streamer->loops < LOOPS_FREE)
        return;
    streamer->memory.release(streamer->memory.owner);
    if (streamer->loops < LOOPS_YIELDING || !streamer->control.relax)
        sched_yield();
    else
        streamer->control.relax(streamer->control.owner,
                                least(LOOP_SLEEP_MIN_US + streamer->loops / LOOPS_PER_US, LOOP_SLEEP_MAX_US));
    streamer_poll(streamer, 0);
}

void command_batch_start(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    uint64_t target = command_address(dword + 1) & ~UINT64_C(3);
    if (dword[0] & BATCH_START_INDIRECT)
        target = streamer_gpr(streamer, 0) & ~UINT64_C(3);
    /* Whatever the address space bit says: a batch that is not privileged stays in its own address space. */
    if (dword[0] & BATCH_START_SECOND_LEVEL) {
        if (streamer->depth == STREAMER_LEVELS) {
            streamer_refuse(streamer, "MI_BATCH_BUFFER_START nested deeper than %d levels", STREAMER_LEVELS);
            return;
        }
        streamer->returns[streamer->depth++] = streamer->address;
    } else if (target <= streamer->address) {
        slow_down(streamer);
    }
    streamer->address = target;
}

void command_batch_end(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)dword;
    (void)count;
    if (streamer->depth)
        streamer->address = streamer->returns[--streamer->depth];
    else if (streamer->result == STREAMER_RUNNING)
        streamer->result = STREAMER_DONE;
}

/* Goes on while the comparison holds. Without the compare bit nothing is compared and the batch goes on (a guess). */
void command_conditional_end(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    uint64_t memory, mask = UINT32_MAX, address = command_address(dword + 2) & ~UINT64_C(3);
    if (!(dword[0] & CONDITIONAL_COMPARE) || !streamer_load(streamer, address, 4, &memory))
        return;
    if (dword[0] & CONDITIONAL_MASK && !streamer_load(streamer, address + 4, 4, &mask))
        return;
    if (command_compare(dword[0] >> COMPARE_SHIFT, memory & mask, dword[1] & mask))
        return;
    if (!(dword[0] & CONDITIONAL_THIS_LEVEL))
        streamer->depth = 0;
    command_batch_end(streamer, dword, count);
}

void command_semaphore_wait(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    uint64_t address = command_address(dword + 2) & ~UINT64_C(3), wanted = dword[1], value;
    unsigned size = dword[0] & SEMAPHORE_QWORD ? 8 : 4, sleep_us = POLL_SLEEP_MIN_US;
    uint64_t slept_us = 0;
    if (dword[0] & (SEMAPHORE_INDIRECT | SEMAPHORE_QWORD))
        wanted = streamer_gpr(streamer, 0);
    if (size == 4)
        wanted &= UINT32_MAX;
    for (unsigned polls = 0;; polls++) {
        if (dword[0] & SEMAPHORE_REGISTER)
            value = streamer_register_read(streamer, (uint32_t)address, false);
        else if (!streamer_load(streamer, address, size, &value))
            return;
        if (command_compare(dword[0] >> COMPARE_SHIFT, value, wanted))
            return;
        streamer->memory.release(streamer->memory.owner);
        if (polls < POLLS_FREE || !streamer->control.relax) {
            sched_yield();
        } else {
            streamer->control.relax(streamer->control.owner, sleep_us);
            slept_us += sleep_us;
            if (slept_us / POLL_IDLE_SHARE < POLL_SLEEP_MAX_US)
                sleep_us = least(sleep_us * 2, POLL_SLEEP_MAX_US);
            else
                sleep_us = least((unsigned)(slept_us / POLL_IDLE_SHARE), POLL_SLEEP_IDLE_US);
        }
        if (!streamer_poll(streamer, 0))
            return;
    }
}

static uint64_t register_pair(const struct streamer *streamer, unsigned offset)
{
    return ((uint64_t)streamer->registers[offset / 4 + 1] << 32) | streamer->registers[offset / 4];
}

void command_predicate(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    uint32_t *result = &streamer->registers[PREDICATE_RESULT / 4];
    uint64_t data = register_pair(streamer, PREDICATE_DATA);
    uint64_t delta = register_pair(streamer, PREDICATE_SRC0) - register_pair(streamer, PREDICATE_SRC1);
    const bool compared[] = {true, false, delta == 0, delta == data};
    bool value = compared[dword[0] & 3];
    switch (dword[0] >> 3 & 3) {
    case 1:
        value = value && (*result & 1);
        break;
    case 2:
        value = value || (*result & 1);
        break;
    case 3:
        value = value != (*result & 1);
        break;
    }
    switch (dword[0] >> 6 & 3) {
    case 2:
        *result = value;
        break;
    case 3:
        *result = !value;
        break;
    }
}

void command_set_predicate(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    bool first = streamer->registers[PREDICATE_RESULT / 4] & 1,
         second = streamer->registers[PREDICATE_RESULT_2 / 4] & 1;
    switch (dword[0] & 0xf) {
    case 0:
        streamer->predicated = false;
        break;
    case 1:
        streamer->predicated = !second;
        break;
    case 2:
        streamer->predicated = second;
        break;
    case 3:
        streamer->predicated = !first;
        break;
    case 4:
        streamer->predicated = first;
        break;
    case 0xf:
        streamer->predicated = true;
        break;
    default:
        streamer_refuse(streamer, "MI_SET_PREDICATE with the reserved condition %u", dword[0] & 0xf);
    }
}

/* All accesses here are in order: a fence has nothing to do. Its opcode is shared by commands told apart by a second
 * one. */
void command_mem_fence(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    if (dword[0] >> 17 & 0x3f)
        streamer_refuse(streamer, "unknown extended MI command 0x%08x", dword[0]);
}

void command_user_interrupt(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)dword;
    (void)count;
    streamer_interrupt(streamer);
}
