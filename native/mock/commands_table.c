/* Every command a streamer has heard of: the table is the documentation. Header bits 31:29 name the client (0 MI, 2
   blitter, 3 the 3D, compute and media pipes). Rows with command_skip only set state, or order accesses that are in
   order here anyway; rows without a function have effects that are not implemented: they end the queue, since skipped
   they would give wrong data. */
#include "commands.h"

#define LENGTH 0xff

/* By header bits 28:23. Commands below 0x10 are one dword. */
static const struct command mi_commands[64] = {
    [0x00] = {.name = "MI_NOOP", .minimum = 1, .execute = command_skip},
    [0x01] = {.name = "MI_SET_PREDICATE", .minimum = 1, .execute = command_set_predicate},
    [0x02] = {.name = "MI_USER_INTERRUPT", .minimum = 1, .execute = command_user_interrupt},
    [0x03] = {.name = "MI_WAIT_FOR_EVENT", .minimum = 1},
    [0x05] = {.name = "MI_ARB_CHECK", .minimum = 1, .execute = command_skip},
    [0x06] = {.name = "MI_RS_CONTROL", .minimum = 1, .execute = command_skip},
    [0x07] = {.name = "MI_REPORT_HEAD", .minimum = 1, .execute = command_skip}, /* to the status page, invisible */
    [0x08] = {.name = "MI_ARB_ON_OFF", .minimum = 1, .execute = command_skip},
    [0x09] = {.name = "MI_MEM_FENCE", .minimum = 1, .execute = command_mem_fence},
    [0x0a] = {.name = "MI_BATCH_BUFFER_END", .minimum = 1, .execute = command_batch_end},
    [0x0b] = {.name = "MI_SUSPEND_FLUSH", .minimum = 1, .execute = command_skip},
    [0x0c] = {.name = "MI_PREDICATE", .minimum = 1, .execute = command_predicate},
    [0x0d] = {.name = "MI_TOPOLOGY_FILTER", .minimum = 1, .execute = command_skip},
    [0x0e] = {.name = "MI_SET_APPID", .minimum = 1, .execute = command_skip},
    [0x0f] = {.name = "MI_RS_CONTEXT", .minimum = 1, .execute = command_skip},
    [0x18] = {.name = "MI_SET_CONTEXT", .length_mask = LENGTH, .minimum = 2},
    [0x1a] = {.name = "MI_MATH", .length_mask = LENGTH, .minimum = 2, .execute = command_math},
    /* Signals waiters in signal mode; all waits here poll. */
    [0x1b] = {.name = "MI_SEMAPHORE_SIGNAL", .length_mask = LENGTH, .minimum = 2, .execute = command_skip},
    [0x1c] = {.name = "MI_SEMAPHORE_WAIT", .length_mask = LENGTH, .minimum = 4, .execute = command_semaphore_wait},
    [0x1d] = {.name = "MI_FORCE_WAKEUP", .length_mask = LENGTH, .minimum = 2, .execute = command_skip},
    [0x20] = {.name = "MI_STORE_DATA_IMM", .length_mask = 0x3ff, .minimum = 4, .execute = command_store_data_imm},
    [0x21] = {.name = "MI_STORE_DATA_INDEX", .length_mask = LENGTH, .minimum = 3, .execute = command_skip},
    [0x22] = {.name = "MI_LOAD_REGISTER_IMM",
              .length_mask = LENGTH,
              .minimum = 3,
              .execute = command_load_register_imm},
    [0x23] = {.name = "MI_UPDATE_GTT", .length_mask = 0x3ff, .minimum = 2},
    [0x24] = {.name = "MI_STORE_REGISTER_MEM",
              .length_mask = LENGTH,
              .minimum = 4,
              .execute = command_store_register_mem},
    [0x26] = {.name = "MI_FLUSH_DW", .length_mask = 0x3f, .minimum = 3, .execute = command_flush_dw},
    [0x27] = {.name = "MI_CLFLUSH", .length_mask = 0x3ff, .minimum = 3, .execute = command_skip},
    [0x28] = {.name = "MI_REPORT_PERF_COUNT", .length_mask = 0x3f, .minimum = 4},
    [0x29] = {.name = "MI_LOAD_REGISTER_MEM",
              .length_mask = LENGTH,
              .minimum = 4,
              .execute = command_load_register_mem},
    [0x2a] = {.name = "MI_LOAD_REGISTER_REG",
              .length_mask = LENGTH,
              .minimum = 3,
              .execute = command_load_register_reg},
    [0x2e] = {.name = "MI_COPY_MEM_MEM", .length_mask = LENGTH, .minimum = 5, .execute = command_copy_mem_mem},
    [0x2f] = {.name = "MI_ATOMIC", .length_mask = LENGTH, .minimum = 3, .execute = command_atomic},
    [0x31] = {.name = "MI_BATCH_BUFFER_START", .length_mask = LENGTH, .minimum = 3, .execute = command_batch_start},
    [0x36] = {.name = "MI_CONDITIONAL_BATCH_BUFFER_END",
              .length_mask = LENGTH,
              .minimum = 4,
              .execute = command_conditional_end},
    /* Starts the batch that a preempted context resumes with: preemption does not show here. */
    [0x39] = {.name = "PRT_BATCH_BUFFER_START", .length_mask = LENGTH, .minimum = 3, .execute = command_batch_start},
};

/* By header bits 28:22. */
static const struct command blit_commands[128] = {
    [0x40] = {.name = "COLOR_BLT", .length_mask = LENGTH, .minimum = 2},
    [0x41] = {.name = "XY_BLOCK_COPY_BLT", .length_mask = LENGTH, .minimum = 12, .execute = command_block_copy},
    [0x42] = {.name = "XY_FAST_COPY_BLT", .length_mask = LENGTH, .minimum = 10, .execute = command_fast_copy},
    [0x43] = {.name = "SRC_COPY_BLT", .length_mask = LENGTH, .minimum = 2},
    [0x44] = {.name = "XY_FAST_COLOR_BLT", .length_mask = LENGTH, .minimum = 11, .execute = command_fast_color},
    [0x48] = {.name = "XY_CTRL_SURF_COPY_BLT", .length_mask = LENGTH, .minimum = 2},
    [0x50] = {.name = "XY_COLOR_BLT", .length_mask = LENGTH, .minimum = 2},
    [0x53] = {.name = "XY_SRC_COPY_BLT", .length_mask = LENGTH, .minimum = 2},
    [0x5a] = {.name = "MEM_COPY", .length_mask = LENGTH, .minimum = 10, .execute = command_mem_copy},
    [0x5b] = {.name = "MEM_SET", .length_mask = LENGTH, .minimum = 7, .execute = command_mem_set},
};

#define ROW(n, m, o, l, min, f) {.name = n, .mask = m, .opcode = o, .length_mask = l, .minimum = min, .execute = f}
#define OPCODE 0xffff0000 /* type, subtype, opcode and subopcode */
#define GROUP 0xff000000  /* all subopcodes */

/* Searched in order. */
static const struct command pipe_commands[] = {
    ROW("PIPE_CONTROL", OPCODE, 0x7a000000, LENGTH, 2, command_pipe_control),
    ROW("STATE_PREFETCH", OPCODE, 0x60030000, LENGTH, 2, command_skip),
    ROW("STATE_BASE_ADDRESS", OPCODE, 0x61010000, LENGTH, 2, command_skip),
    ROW("STATE_SIP", OPCODE, 0x61020000, LENGTH, 2, command_skip),
    ROW("GPGPU_CSR_BASE_ADDRESS", OPCODE, 0x61040000, LENGTH, 2, command_skip),
    ROW("STATE_COMPUTE_MODE", OPCODE, 0x61050000, LENGTH, 2, command_skip),
    ROW("3DSTATE_BTD", OPCODE, 0x61060000, LENGTH, 2, command_skip),
    ROW("STATE_SYSTEM_MEM_FENCE_ADDRESS", OPCODE, 0x61090000, LENGTH, 3, command_skip),
    ROW("STATE_CONTEXT_DATA_BASE_ADDRESS", OPCODE, 0x610b0000, LENGTH, 2, command_skip),
    ROW("PIPELINE_SELECT", OPCODE, 0x69040000, 0, 1, command_skip),
    ROW("3DSTATE_VF_STATISTICS", OPCODE, 0x690b0000, 0, 1, command_skip),
    ROW("MFX_WAIT", OPCODE, 0x68000000, 0, 1, command_skip),
    ROW("CFE_STATE", OPCODE, 0x72000000, LENGTH, 2, command_skip),
    ROW("COMPUTE_WALKER_2", OPCODE, 0x72010000, LENGTH, 2, NULL),
    ROW("COMPUTE_WALKER", OPCODE, 0x72080000, LENGTH, 2, NULL),
    ROW("GPGPU_WALKER", OPCODE, 0x71050000, LENGTH, 2, NULL),
    ROW("3DSTATE_WM_HZ_OP", OPCODE, 0x78520000, LENGTH, 2, command_hz_op),
    ROW("3DSTATE (pipelined)", GROUP, 0x78000000, LENGTH, 2, command_skip),
    ROW("3DSTATE (not pipelined)", GROUP, 0x79000000, LENGTH, 2, command_skip),
    ROW("3DPRIMITIVE", OPCODE, 0x7b000000, LENGTH, 2, NULL),
    ROW("3DPRIMITIVE or 3DMESH (other forms)", GROUP, 0x7b000000, LENGTH, 2, NULL),
    ROW("EXECUTE_INDIRECT", GROUP, 0x7c000000, LENGTH, 2, NULL),
};

/* Client 5 has one command so far. */
static const struct command barrier_command = {
    .name = "RESOURCE_BARRIER", .length_mask = LENGTH, .minimum = 2, .execute = command_skip};

void command_skip(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)streamer;
    (void)dword;
    (void)count;
}

const struct command *command_find(uint32_t header)
{
    const struct command *command = NULL;
    switch (header >> 29) {
    case 0:
        command = &mi_commands[header >> 23 & 0x3f];
        break;
    case 2:
        command = &blit_commands[header >> 22 & 0x7f];
        break;
    case 3:
        for (unsigned i = 0; i < sizeof(pipe_commands) / sizeof(*pipe_commands); i++)
            if ((header & pipe_commands[i].mask) == pipe_commands[i].opcode)
                return &pipe_commands[i];
        break;
    case 5:
        if ((header >> 26 & 7) == 3)
            command = &barrier_command;
        break;
    }
    return command && command->name ? command : NULL;
}

unsigned command_length(const struct command *command, uint32_t header)
{
    return command->length_mask ? (header & command->length_mask) + 2 : 1;
}
