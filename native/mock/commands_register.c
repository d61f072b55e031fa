/* Commands between registers, memory and the ALU. */
#include "commands.h"

enum {
    RELATIVE = 1 << 19,        /* the register's address is an offset from the engine's base */
    RELATIVE_SOURCE = 1 << 18, /* the same for MI_LOAD_REGISTER_REG's source */
    STORE_PREDICATED = 1 << 21,
    PREDICATE_RESULT = 0x418,
    REGISTER_BITS = 0x7ffffc,
};

void command_load_register_imm(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    for (unsigned i = 1; i + 1 < count; i += 2)
        if (!streamer_register_write(streamer, dword[i] & REGISTER_BITS, dword[0] & RELATIVE, dword[i + 1]))
            return;
}

void command_load_register_mem(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    uint64_t value;
    if (streamer_load(streamer, command_address(dword + 2) & ~UINT64_C(3), 4, &value))
        streamer_register_write(streamer, dword[1] & REGISTER_BITS, dword[0] & RELATIVE, (uint32_t)value);
}

void command_load_register_reg(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    uint32_t value = streamer_register_read(streamer, dword[1] & REGISTER_BITS, dword[0] & RELATIVE_SOURCE);
    streamer_register_write(streamer, dword[2] & REGISTER_BITS, dword[0] & RELATIVE, value);
}

void command_store_register_mem(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    (void)count;
    if (dword[0] & STORE_PREDICATED && !(streamer->registers[PREDICATE_RESULT / 4] & 1))
        return;
    streamer_store(streamer, command_address(dword + 2) & ~UINT64_C(3), 4,
                   streamer_register_read(streamer, dword[1] & REGISTER_BITS, dword[0] & RELATIVE));
}

enum alu_operation {
    ALU_NOOP = 0x000,
    ALU_FENCE_READ = 0x001,
    ALU_FENCE_WRITE = 0x002,
    ALU_LOAD = 0x080,
    ALU_LOAD0 = 0x081,
    ALU_LOAD_INDIRECT = 0x082,
    ALU_LOAD_INVERTED = 0x480,
    ALU_LOAD1 = 0x481,
    ALU_ADD = 0x100,
    ALU_SUB = 0x101,
    ALU_AND = 0x102,
    ALU_OR = 0x103,
    ALU_XOR = 0x104,
    ALU_SHL = 0x105,
    ALU_SHR = 0x106,
    ALU_SAR = 0x107,
    ALU_STORE = 0x180,
    ALU_STORE_INDIRECT = 0x181,
    ALU_STORE_INVERTED = 0x580,
};

enum alu_operand { ALU_GPRS = 0x10, ALU_SRCA = 0x20, ALU_SRCB = 0x21, ALU_ACCU = 0x31, ALU_ZF = 0x32, ALU_CF = 0x33 };

struct alu {
    uint64_t srca, srcb, accu;
    bool zero, carry;
};

/* Flags read as all ones or zero (a guess, from how Mesa's builder uses them as booleans). */
static uint64_t alu_get(const struct streamer *streamer, const struct alu *alu, unsigned operand)
{
    switch (operand) {
    case ALU_SRCA:
        return alu->srca;
    case ALU_SRCB:
        return alu->srcb;
    case ALU_ACCU:
        return alu->accu;
    case ALU_ZF:
        return alu->zero ? UINT64_MAX : 0;
    case ALU_CF:
        return alu->carry ? UINT64_MAX : 0;
    default:
        return operand < ALU_GPRS ? streamer_gpr(streamer, operand) : 0;
    }
}

static void alu_set(struct streamer *streamer, struct alu *alu, unsigned operand, uint64_t value)
{
    switch (operand) {
    case ALU_SRCA:
        alu->srca = value;
        break;
    case ALU_SRCB:
        alu->srcb = value;
        break;
    default:
        if (operand < ALU_GPRS)
            streamer_set_gpr(streamer, operand, value);
    }
}

/* Only sums carry; every result sets the zero flag. */
static void alu_result(struct alu *alu, uint64_t value, bool carry)
{
    alu->accu = value;
    alu->zero = value == 0;
    alu->carry = carry;
}

static bool alu_step(struct streamer *streamer, struct alu *alu, uint32_t instruction)
{
    unsigned operation = instruction >> 20, first = instruction >> 10 & 0x3ff, second = instruction & 0x3ff;
    uint64_t value;
    switch (operation) {
    case ALU_NOOP:
    case ALU_FENCE_READ:
    case ALU_FENCE_WRITE:
        return true;
    case ALU_LOAD:
    case ALU_LOAD_INVERTED:
        value = alu_get(streamer, alu, second);
        alu_set(streamer, alu, first, operation == ALU_LOAD ? value : ~value);
        return true;
    case ALU_LOAD0:
    case ALU_LOAD1:
        alu_set(streamer, alu, first, operation == ALU_LOAD0 ? 0 : UINT64_MAX);
        return true;
    case ALU_LOAD_INDIRECT:
        if (!streamer_load(streamer, alu_get(streamer, alu, second), 8, &value))
            return false;
        alu_set(streamer, alu, first, value);
        return true;
    case ALU_STORE_INDIRECT:
        return streamer_store(streamer, alu_get(streamer, alu, first), 8, alu_get(streamer, alu, second));
    case ALU_ADD:
        alu_result(alu, alu->srca + alu->srcb, alu->srca + alu->srcb < alu->srca);
        return true;
    case ALU_SUB:
        alu_result(alu, alu->srca - alu->srcb, alu->srca < alu->srcb);
        return true;
    case ALU_AND:
        alu_result(alu, alu->srca & alu->srcb, false);
        return true;
    case ALU_OR:
        alu_result(alu, alu->srca | alu->srcb, false);
        return true;
    case ALU_XOR:
        alu_result(alu, alu->srca ^ alu->srcb, false);
        return true;
    case ALU_SHL:
        alu_result(alu, alu->srcb < 64 ? alu->srca << alu->srcb : 0, false);
        return true;
    case ALU_SHR:
        alu_result(alu, alu->srcb < 64 ? alu->srca >> alu->srcb : 0, false);
        return true;
    case ALU_SAR:
        alu_result(alu, (uint64_t)((int64_t)alu->srca >> (alu->srcb < 64 ? alu->srcb : 63)), false);
        return true;
    case ALU_STORE:
    case ALU_STORE_INVERTED:
        value = alu_get(streamer, alu, second);
        alu_set(streamer, alu, first, operation == ALU_STORE ? value : ~value);
        return true;
    default:
        return streamer_refuse(streamer, "MI_MATH with the unknown operation 0x%03x", operation);
    }
}

void command_math(struct streamer *streamer, const uint32_t *dword, unsigned count)
{
    struct alu alu = {0};
    for (unsigned i = 1; i < count; i++)
        if (!alu_step(streamer, &alu, dword[i]))
            return;
}
