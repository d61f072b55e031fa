/* The register file of one context: this engine's window as plain storage, with the counters computed on reading. */
#include "streamer.h"

enum {
    TIMESTAMP = 0x358,
    CTX_TIMESTAMP = 0x3a8,
    GPR = 0x600,
    GPRS = 16,
    RENDER_BASE = 0x2000,
};

/* Windows of engines' registers, to translate an address of the render engine's that the hardware remaps. */
static bool in_window(uint32_t address, uint32_t base)
{
    return address >= base && address < base + STREAMER_WINDOW;
}

/* Offset in this engine's window, or -1 for a register outside it. A render address means this engine's own register:
   the hardware does that with the remap bit, and an engine has no other use for it. */
static int window_offset(const struct streamer *streamer, uint32_t address, bool relative)
{
    if (relative)
        return (int)(address & (STREAMER_WINDOW - 4));
    if (in_window(address, streamer->engine_base))
        return (int)(address - streamer->engine_base);
    if (in_window(address, RENDER_BASE))
        return (int)(address - RENDER_BASE);
    return -1;
}

uint32_t streamer_register_read(struct streamer *streamer, uint32_t address, bool relative)
{
    int offset = window_offset(streamer, address & ~3u, relative);
    switch (offset) {
    case -1:
        for (unsigned i = 0; i < streamer->foreign_count; i++)
            if (streamer->foreign[i].address == (address & ~3u))
                return streamer->foreign[i].value;
        return 0;
    case TIMESTAMP:
        return (uint32_t)streamer_ticks();
    case TIMESTAMP + 4:
        return (uint32_t)(streamer_ticks() >> 32);
    case CTX_TIMESTAMP:
        return (uint32_t)streamer_context_ticks(streamer);
    case CTX_TIMESTAMP + 4:
        return (uint32_t)(streamer_context_ticks(streamer) >> 32);
    default:
        return streamer->registers[offset / 4];
    }
}

bool streamer_register_write(struct streamer *streamer, uint32_t address, bool relative, uint32_t value)
{
    address &= ~3u;
    int offset = window_offset(streamer, address, relative);
    if (offset >= 0) {
        streamer->registers[offset / 4] = value;
        return true;
    }
    unsigned i = 0;
    while (i < streamer->foreign_count && streamer->foreign[i].address != address)
        i++;
    if (i == STREAMER_FOREIGN_REGISTERS)
        return streamer_refuse(streamer, "more than %d registers outside the engine written",
                               STREAMER_FOREIGN_REGISTERS);
    if (i == streamer->foreign_count)
        streamer->foreign[streamer->foreign_count++].address = address;
    streamer->foreign[i].value = value;
    return true;
}

uint64_t streamer_gpr(const struct streamer *streamer, unsigned index)
{
    const uint32_t *at = &streamer->registers[GPR / 4 + 2 * (index % GPRS)];
    return ((uint64_t)at[1] << 32) | at[0];
}

void streamer_set_gpr(struct streamer *streamer, unsigned index, uint64_t value)
{
    uint32_t *at = &streamer->registers[GPR / 4 + 2 * (index % GPRS)];
    at[0] = (uint32_t)value;
    at[1] = (uint32_t)(value >> 32);
}
