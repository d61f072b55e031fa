#pragma once
/* The commands a streamer knows: one row each. Encodings: Mesa's genxml, IGT's and compute-runtime's headers (Xe2). */
#include "streamer.h"

typedef void command_execute(struct streamer *streamer, const uint32_t *dword, unsigned count);

struct command {
    const char *name;
    uint32_t mask, opcode;    /* of the header; used by the tables that are searched */
    uint16_t length_mask;     /* bits of the header with the number of dwords less 2; 0: one dword */
    uint8_t minimum;          /* dwords; a shorter one is refused */
    command_execute *execute; /* NULL: refused by name. Pure state goes to command_skip(). */
};

/* NULL: unknown. */
const struct command *command_find(uint32_t header);
unsigned command_length(const struct command *command, uint32_t header);

/* State that nothing implemented here ever reads: no effect on memory. */
command_execute command_skip;

/* commands_flow.c */
command_execute command_batch_start, command_batch_end, command_conditional_end, command_semaphore_wait,
    command_predicate, command_set_predicate, command_mem_fence, command_user_interrupt;
/* commands_register.c */
command_execute command_load_register_imm, command_load_register_mem, command_load_register_reg,
    command_store_register_mem, command_math;
/* commands_memory.c */
command_execute command_store_data_imm, command_copy_mem_mem, command_atomic, command_flush_dw, command_pipe_control,
    command_hz_op;
/* commands_blit.c */
command_execute command_mem_copy, command_mem_set;
/* commands_surface.c */
command_execute command_fast_copy, command_block_copy, command_fast_color;

bool command_compare(unsigned operation, uint64_t left, uint64_t right);
static inline uint64_t command_address(const uint32_t *dword)
{
    return ((uint64_t)dword[1] << 32) | dword[0];
}
