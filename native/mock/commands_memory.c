/* Commands that write memory without an engine behind them. The address space bit of their headers is not looked at: a
   batch that is not privileged always means its own. */
#include "commands.h"

enum {
    STORE_QWORD = 1 << 21,
    ATOMIC_RETURN = 1 << 16,
    ATOMIC_INLINE = 1 << 18,
    ATOMIC_INLINE_DWORDS = 11,
    ATOMIC_QWORD = 0x20,
    POST_SYNC_SHIFT = 14,
    NOTIFY = 1 << 8,
    POST_SYNC_INDEX = 1 << 21, /* to the status page, which no program can see */
    PIPE_CONTROL_REGISTER = 1 << 23,
    HZ_OP_ENABLES = 0x7c000000 | 1u << 25,
};

enum post_sync { POST_SYNC_NONE, POST_SYNC_IMMEDIATE, POST_SYNC_DEPTH_COUNT, POST_SYNC_TIMESTAMP };

void command_store_data_imm(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    uint64_t address = command_address(dword + 1) & ~UINT64_C(3);
    unsigned step = dword[0] & STORE_QWORD ? 2 : 1;
    for (unsigned i = 3; i + step <= count; i += step, address += step * 4) {
        uint64_t value = step == 2 ? command_address(dword + i) : dword[i];
        if (!streamer_store(streamer, address, step * 4, value))
            return;
    }
}

void command_copy_mem_mem(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    uint64_t value;
    if (streamer_load(streamer, command_address(dword + 3) & ~UINT64_C(3), 4, &value))
        streamer_store(streamer, command_address(dword + 1) & ~UINT64_C(3), 4, value);
}

enum atomic_operation {
    ATOMIC_AND = 0x1,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_MOVE,
    ATOMIC_INCREMENT,
    ATOMIC_DECREMENT,
    ATOMIC_ADD,
    ATOMIC_SUB,
    ATOMIC_REVERSE_SUB,
    ATOMIC_MAX_SIGNED,
    ATOMIC_MIN_SIGNED,
    ATOMIC_MAX,
    ATOMIC_MIN,
    ATOMIC_COMPARE_WRITE,
    ATOMIC_PREDECREMENT,
};

/* Pre-decrement differs from decrement only in what it returns. Compare-and-write: `first` is compared, `second`
 * written. */
static uint64_t atomic_apply(enum atomic_operation operation, unsigned size, uint64_t old, uint64_t first,
                             uint64_t second)
{
    unsigned spare = 64 - size * 8;
    int64_t signed_old = (int64_t)(old << spare), signed_first = (int64_t)(first << spare);
    switch (operation) {
    case ATOMIC_AND:
        return old & first;
    case ATOMIC_OR:
        return old | first;
    case ATOMIC_XOR:
        return old ^ first;
    case ATOMIC_MOVE:
        return first;
    case ATOMIC_INCREMENT:
        return old + 1;
    case ATOMIC_DECREMENT:
    case ATOMIC_PREDECREMENT:
        return old - 1;
    case ATOMIC_ADD:
        return old + first;
    case ATOMIC_SUB:
        return old - first;
    case ATOMIC_REVERSE_SUB:
        return first - old;
    case ATOMIC_MAX_SIGNED:
        return signed_old > signed_first ? old : first;
    case ATOMIC_MIN_SIGNED:
        return signed_old < signed_first ? old : first;
    case ATOMIC_MAX:
        return old > first ? old : first;
    case ATOMIC_MIN:
        return old < first ? old : first;
    case ATOMIC_COMPARE_WRITE:
        return old == first ? second : old;
    }
    return old;
}

static bool exchange(struct gpu_bytes *span, unsigned size, uint64_t *old, uint64_t next)
{
    if (size == 8)
        return __atomic_compare_exchange_n((uint64_t *)(void *)span->bytes, old, next, false, __ATOMIC_SEQ_CST,
                                           __ATOMIC_ACQUIRE);
    uint32_t expected = (uint32_t)*old;
    bool done = __atomic_compare_exchange_n((uint32_t *)(void *)span->bytes, &expected, (uint32_t)next, false,
                                            __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
    *old = expected;
    return done;
}

void command_atomic(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    unsigned operation = dword[0] >> 8 & 0xff, size = operation & ATOMIC_QWORD ? 8 : 4;
    uint64_t address = command_address(dword + 1) & ~UINT64_C(3), mask = size == 8 ? UINT64_MAX : UINT32_MAX;
    uint64_t first = streamer_gpr(streamer, 0), second = streamer_gpr(streamer, 1), old = 0, next;
    struct gpu_bytes span;

    if ((operation & ~ATOMIC_QWORD) < ATOMIC_AND || (operation & ~ATOMIC_QWORD) > ATOMIC_PREDECREMENT) {
        streamer_refuse(streamer, "MI_ATOMIC with the operation 0x%02x is not implemented", operation);
        return;
    }
    if (dword[0] & ATOMIC_INLINE) {
        if (count < ATOMIC_INLINE_DWORDS) {
            streamer_refuse(streamer, "MI_ATOMIC with inline data has %u dwords", count);
            return;
        }
        first = dword[3] | (uint64_t)dword[5] << 32;
        second = dword[4] | (uint64_t)dword[6] << 32;
    }
    if (address % size) {
        streamer_refuse(streamer, "MI_ATOMIC of %u bytes at the unaligned address 0x%llx", size,
                        (unsigned long long)address);
        return;
    }
    if (!streamer_span(streamer, address, size, GPU_ATOMIC, &span))
        return;
    if (span.bytes && size == 8)
        old = __atomic_load_n((uint64_t *)(void *)span.bytes, __ATOMIC_ACQUIRE);
    else if (span.bytes)
        old = __atomic_load_n((uint32_t *)(void *)span.bytes, __ATOMIC_ACQUIRE);
    do
        next = atomic_apply(operation & ~ATOMIC_QWORD, size, old, first & mask, second) & mask;
    while (span.bytes && !exchange(&span, size, &old, next));
    if (dword[0] & ATOMIC_RETURN)
        streamer_set_gpr(streamer, 4, (operation & ~ATOMIC_QWORD) == ATOMIC_PREDECREMENT ? next : old);
}

static void post_sync(struct streamer *streamer, enum post_sync operation, uint64_t address, unsigned size,
                      uint64_t immediate)
{
    switch (operation) {
    case POST_SYNC_NONE:
        return;
    case POST_SYNC_IMMEDIATE:
        streamer_store(streamer, address, size, immediate);
        break;
    case POST_SYNC_DEPTH_COUNT: /* nothing is ever drawn */
        streamer_store(streamer, address, 8, 0);
        break;
    case POST_SYNC_TIMESTAMP:
        streamer_store(streamer, address, 8, streamer_ticks());
        break;
    }
    streamer_interrupt(streamer);
}

void command_flush_dw(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    enum post_sync operation = dword[0] >> POST_SYNC_SHIFT & 3;
    if (dword[0] & NOTIFY)
        streamer_interrupt(streamer);
    if (operation == POST_SYNC_NONE || dword[0] & POST_SYNC_INDEX)
        return;
    if (operation == POST_SYNC_DEPTH_COUNT || count < 4) {
        streamer_refuse(streamer, "MI_FLUSH_DW with the reserved post-sync operation %u in %u dwords", operation,
                        count);
        return;
    }
    /* The short form carries, and writes, one dword. */
    uint64_t immediate = count > 4 ? command_address(dword + 3) : dword[3];
    post_sync(streamer, operation, command_address(dword + 1) & ~UINT64_C(7), count > 4 ? 8 : 4, immediate);
}

void command_pipe_control(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    enum post_sync operation = dword[1] >> POST_SYNC_SHIFT & 3;
    if (dword[1] & PIPE_CONTROL_REGISTER && count >= 5) {
        streamer_register_write(streamer, dword[2] & 0x7ffffc, false, dword[4]);
        return;
    }
    if (dword[1] & NOTIFY)
        streamer_interrupt(streamer);
    if (operation == POST_SYNC_NONE || dword[1] & POST_SYNC_INDEX)
        return;
    if (count < 6) {
        streamer_refuse(streamer, "PIPE_CONTROL with a post-sync operation has %u dwords", count);
        return;
    }
    post_sync(streamer, operation, command_address(dword + 2) & ~UINT64_C(7), 8, command_address(dword + 4));
}

/* Drivers reset this state with zeros; with an enable it clears or resolves a depth buffer. */
void command_hz_op(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    if (dword[1] & HZ_OP_ENABLES)
        streamer_refuse(streamer, "3DSTATE_WM_HZ_OP (0x%08x) is not implemented", dword[1]);
}
