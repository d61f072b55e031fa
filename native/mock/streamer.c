#include "streamer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "xe_uapi.h"

enum {
    COMMANDS_PER_POLL = 256,
    BYTES_PER_POLL = 4 << 20,
    DWORDS_MAX = 1026, /* MI_STORE_DATA_IMM has the longest length field: 10 bits, less 2 */
};

uint64_t streamer_ticks(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    /* 19.2 ticks a microsecond: exact in integers, and no overflow for centuries. */
    return (uint64_t)now.tv_sec * 19200000 + (uint64_t)now.tv_nsec * 12 / 625;
}

uint64_t streamer_context_ticks(const struct streamer *streamer)
{
    return streamer->context_ticks + (streamer_ticks() - streamer->batch_start_ticks);
}

void streamer_init(struct streamer *streamer, uint16_t engine_class, uint16_t instance)
{
    static const uint32_t compute[] = {0x1a000, 0x1c000, 0x1e000, 0x26000};
    memset(streamer, 0, sizeof(*streamer));
    streamer->address_bits = 48;
    switch (engine_class) {
    case DRM_XE_ENGINE_CLASS_COPY:
        streamer->engine_base = instance ? 0x3e0000 + 0x2000 * (instance - 1u) : 0x22000;
        break;
    case DRM_XE_ENGINE_CLASS_COMPUTE:
        streamer->engine_base = compute[instance & 3];
        break;
    case DRM_XE_ENGINE_CLASS_VIDEO_DECODE:
        streamer->engine_base = 0x1c0000 + 0x4000u * instance;
        break;
    case DRM_XE_ENGINE_CLASS_VIDEO_ENHANCE:
        streamer->engine_base = 0x1c8000 + 0x10000u * instance;
        break;
    default:
        streamer->engine_base = 0x2000;
    }
}

bool streamer_refuse(struct streamer *streamer, const char *format, ...)
{
    va_list arguments;
    if (streamer->result != STREAMER_RUNNING)
        return false;
    va_start(arguments, format);
    vsnprintf(streamer->reason, sizeof(streamer->reason), format, arguments);
    va_end(arguments);
    streamer->result = STREAMER_REFUSED;
    return false;
}

bool streamer_poll(struct streamer *streamer, uint64_t bytes_done)
{
    streamer->unpolled_bytes += bytes_done;
    if (bytes_done && streamer->unpolled_bytes < BYTES_PER_POLL)
        return true;
    streamer->unpolled_bytes = 0;
    streamer->unpolled_commands = 0;
    if (streamer->result == STREAMER_RUNNING && streamer->control.poll)
        streamer->result = streamer->control.poll(streamer->control.owner);
    return streamer->result == STREAMER_RUNNING;
}

void streamer_interrupt(struct streamer *streamer)
{
    if (streamer->control.interrupt)
        streamer->control.interrupt(streamer->control.owner);
}

/* Reads the rest of the command whose header is dword[0]. NULL: `result` is set. */
static const struct command *fetch(struct streamer *streamer, uint32_t *dword, unsigned *count)
{
    uint64_t header;
    if (!streamer_load(streamer, streamer->address, 4, &header))
        return NULL;
    dword[0] = (uint32_t)header;
    const struct command *command = command_find(dword[0]);
    if (!command) {
        streamer_refuse(streamer, "unknown command 0x%08x at 0x%llx", dword[0], (unsigned long long)streamer->address);
        return NULL;
    }
    *count = command_length(command, dword[0]);
    if (!command->execute) {
        streamer_refuse(streamer, "%s (0x%08x at 0x%llx) is not implemented", command->name, dword[0],
                        (unsigned long long)streamer->address);
        return NULL;
    }
    if (*count < command->minimum || *count > DWORDS_MAX) {
        streamer_refuse(streamer, "%s (0x%08x at 0x%llx) has %u dwords, at least %u expected", command->name, dword[0],
                        (unsigned long long)streamer->address, *count, command->minimum);
        return NULL;
    }
    if (*count > 1 && !streamer_read(streamer, streamer->address + 4, dword + 1, (*count - 1) * 4ull))
        return NULL;
    return command;
}

enum streamer_result streamer_run(struct streamer *streamer, uint64_t address)
{
    uint32_t dword[DWORDS_MAX];
    unsigned count;

    streamer->address = address;
    streamer->depth = 0;
    streamer->loops = 0;
    streamer->predicated = false;
    streamer->result = STREAMER_RUNNING;
    streamer->batch_start_ticks = streamer_ticks();
    streamer_poll(streamer, 0);
    while (streamer->result == STREAMER_RUNNING) {
        const struct command *command = fetch(streamer, dword, &count);
        if (!command)
            break;
        streamer->address += count * 4ull;
        if (!streamer->predicated || command->execute == command_set_predicate || command->execute == command_batch_end)
            command->execute(streamer, dword, count);
        streamer->memory.release(streamer->memory.owner);
        if (++streamer->unpolled_commands >= COMMANDS_PER_POLL)
            streamer_poll(streamer, 0);
    }
    streamer->memory.release(streamer->memory.owner);
    streamer->context_ticks = streamer_context_ticks(streamer);
    streamer->batch_start_ticks = streamer_ticks();
    return streamer->result;
}
