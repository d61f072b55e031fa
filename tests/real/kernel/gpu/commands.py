"""The command table: what each GPU command does to memory and registers.

A command is one row: its key (type and opcode bits of the first dword) and a function of the
running context and the command's dwords. Everything a shader would do is skipped; MI commands,
post-sync writes and the blitter's linear copies and fills are real. Layouts: Intel's public
programmer's reference, "Command Reference: Instructions".
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Context

Words = tuple[int, ...]
Handler = Callable[["Context", Words], None]

GPR_BASE = 0x600
CTX_TIMESTAMP = 0x3A8
TIMESTAMP = 0x358
_SEMAPHORE: tuple[Callable[[int, int], bool], ...] = (
    operator.gt, operator.ge, operator.lt, operator.le, operator.eq, operator.ne,
)  # fmt: skip


class Wait(Exception):
    """The command cannot complete yet; run it again later."""


def _address(low: int, high: int) -> int:
    return (low | high << 32) & 0x0000_FFFF_FFFF_FFFC


def length(first: int) -> int:
    """The number of dwords of the command that starts with `first`."""
    kind = first >> 29
    if kind == 0:
        opcode = first >> 23 & 0x3F
        if opcode < 0x10:
            return 1
        if opcode == 0x20:
            return (first & 0x3FF) + 2
        if opcode == 0x26:
            return (first & 0x3F) + 2
        return (first & 0xFF) + 2
    if kind == 3 and first >> 27 & 3 == 1:
        return 1  # the pipeline's single-dword commands
    return (first & 0xFF) + 2


def key(first: int) -> int:
    """The row of the table: type and opcode without flags and length."""
    kind = first >> 29
    if kind == 0:
        return first >> 23 & 0x3F
    if kind == 2:
        return 0x200 | (first >> 22 & 0x7F)
    if kind == 3:
        return 0x3_0000 | (first >> 16 & 0x1FFF)
    return kind << 28


def _nothing(context: Context, words: Words) -> None:
    """The command has no effect that memory or the driver can see."""


def _user_interrupt(context: Context, words: Words) -> None:
    context.raise_user_interrupt()


def _batch_end(context: Context, words: Words) -> None:
    context.leave_batch()


def _batch_start(context: Context, words: Words) -> None:
    context.enter_batch(
        _address(words[1], words[2]), ppgtt=bool(words[0] & 1 << 8), nested=bool(words[0] & 1 << 22)
    )


def _conditional_end(context: Context, words: Words) -> None:
    """Goes on while the comparison holds."""
    in_ggtt = bool(words[0] & 1 << 22)
    value, mask = struct.unpack("<II", context.load(_address(words[2], words[3]), 8, in_ggtt))
    mask = mask if words[0] & 1 << 19 else 0xFFFF_FFFF
    compare = _SEMAPHORE[words[0] >> 12 & 7]
    if words[0] & 1 << 21 and not compare(value & mask, words[1] & mask):
        context.leave_batch(all_levels=not words[0] & 1 << 18)


def _store_data(context: Context, words: Words) -> None:
    data = struct.pack(f"<{len(words) - 3}I", *words[3:])
    context.store(_address(words[1], words[2]), data, bool(words[0] & 1 << 22))


def _load_register_imm(context: Context, words: Words) -> None:
    for at in range(1, len(words) - 1, 2):
        context.set_register(words[at], words[at + 1], bool(words[0] & 1 << 19))


def _store_register(context: Context, words: Words) -> None:
    value = context.get_register(words[1], bool(words[0] & 1 << 19))
    address = _address(words[2], words[3])
    context.store(address, value.to_bytes(4, "little"), bool(words[0] & 1 << 22))


def _load_register_mem(context: Context, words: Words) -> None:
    value = context.load(_address(words[2], words[3]), 4, bool(words[0] & 1 << 22))
    context.set_register(words[1], int.from_bytes(value, "little"), bool(words[0] & 1 << 19))


def _load_register_reg(context: Context, words: Words) -> None:
    value = context.get_register(words[1], bool(words[0] & 1 << 18))
    context.set_register(words[2], value, bool(words[0] & 1 << 19))


def _copy_mem_mem(context: Context, words: Words) -> None:
    data = context.load(_address(words[3], words[4]), 4, bool(words[0] & 1 << 22))
    context.store(_address(words[1], words[2]), data, bool(words[0] & 1 << 21))


def _flush(context: Context, words: Words) -> None:
    operation = words[0] >> 14 & 3
    if not operation or len(words) < 4:
        return
    address, in_ggtt = _address(words[1] & ~4, words[2]), bool(words[1] & 4)
    if words[0] & 1 << 21:
        address, in_ggtt = context.status_page + (address & 0xFFF), True
    data = words[3:5] if operation == 1 else context.clock_words()
    context.store(address, struct.pack(f"<{len(data)}I", *data), in_ggtt)


def _pipe_control(context: Context, words: Words) -> None:
    operation = words[1] >> 14 & 3
    if operation in (0, 2):
        return
    address, in_ggtt = _address(words[2], words[3]), bool(words[1] & 1 << 24)
    if words[1] & 1 << 21:
        address, in_ggtt = context.status_page + (address & 0xFFF), True
    data = words[4:6] if operation == 1 else context.clock_words()
    context.store(address, struct.pack("<II", *data), in_ggtt)


def _semaphore_wait(context: Context, words: Words) -> None:
    value = context.load(_address(words[2], words[3]), 4, bool(words[0] & 1 << 22))
    compare = _SEMAPHORE[words[0] >> 12 & 7]
    if not compare(int.from_bytes(value, "little"), words[1]) and not context.counter_armed:
        raise Wait


_ATOMIC: dict[int, Callable[[int, int], int]] = {
    0x4: lambda old, data: data,
    0x5: lambda old, data: old + 1,
    0x6: lambda old, data: old - 1,
    0x7: lambda old, data: old + data,
    0x8: lambda old, data: old - data,
    0xD: lambda old, data: max(old, data),
    0xE: lambda old, data: min(old, data),
}


def _atomic(context: Context, words: Words) -> None:
    size = 8 if words[0] >> 19 & 3 == 1 else 4
    operation = _ATOMIC.get(words[0] >> 8 & 0x1F)
    if operation is None:
        print(f"gpu: MI_ATOMIC operation {words[0] >> 8 & 0xFF:#x} skipped", flush=True)
        return
    in_ggtt = bool(words[0] & 1 << 22)
    address = _address(words[1], words[2])
    old = int.from_bytes(context.load(address, size, in_ggtt), "little")
    data = 0
    if words[0] & 1 << 18 and len(words) > 4:
        data = words[3] | words[4] << 32 if size == 8 else words[3]
    mask = (1 << 8 * size) - 1
    context.store(address, (operation(old, data) & mask).to_bytes(size, "little"), in_ggtt)


def _math(context: Context, words: Words) -> None:
    mask = (1 << 64) - 1
    source = {"a": 0, "b": 0}
    accumulator = zero = carry = 0
    for word in words[1:]:
        opcode, to, what = word >> 20, word >> 10 & 0x3FF, word & 0x3FF
        if opcode in (0x080, 0x480, 0x081, 0x481):  # LOAD, LOADINV, LOAD0, LOAD1
            if opcode & 1:
                value = mask if opcode & 0x400 else 0
            else:
                value = context.get_gpr(what)
                value = value ^ mask if opcode & 0x400 else value
            source["a" if to == 0x20 else "b"] = value
        elif opcode in (0x180, 0x580):  # STORE, STOREINV
            value = {0x31: accumulator, 0x32: zero, 0x33: carry}.get(what, 0)
            context.set_gpr(to, value ^ mask if opcode == 0x580 else value)
        elif 0x100 <= opcode <= 0x104:  # ADD, SUB, AND, OR, XOR
            a, b = source["a"], source["b"]
            result = (a + b, a - b, a & b, a | b, a ^ b)[opcode - 0x100]
            accumulator = result & mask
            carry = mask if result != accumulator else 0
            zero = mask if accumulator == 0 else 0


def _copy_lines(
    context: Context, source: int, target: int, width: int, lines: tuple[int, int, int]
) -> None:
    """Copies `lines` = (count, source pitch, target pitch) runs of `width` bytes."""
    count, source_pitch, target_pitch = lines
    for line in range(count):
        context.store(
            target + line * target_pitch, context.load(source + line * source_pitch, width)
        )


def _mem_copy(context: Context, words: Words) -> None:
    source, target = _full(words[5], words[6]), _full(words[7], words[8])
    width = (words[1] & 0x00FF_FFFF) + 1
    if words[0] & 1 << 19:
        _copy_lines(context, source, target, width * 256, (1, 0, 0))
    elif words[0] & 1 << 17:
        shape = (words[2] & 0x3FFFF) + 1, (words[3] & 0x3FFFF) + 1, (words[4] & 0x3FFFF) + 1
        _copy_lines(context, source, target, width, shape)
    else:
        _copy_lines(context, source, target, width, (1, 0, 0))


def _full(low: int, high: int) -> int:
    """A byte address: unlike MI commands, the blitter's need no alignment."""
    return (low | high << 32) & 0x01FF_FFFF_FFFF_FFFF


def _mem_set(context: Context, words: Words) -> None:
    width, address = (words[1] & 0x00FF_FFFF) + 1, _full(words[4], words[5])
    line = bytes([words[6] >> 24]) * width
    height, pitch = 1, 0
    if words[0] & 1 << 17:
        height, pitch = (words[2] & 0x3FFFF) + 1, (words[3] & 0x3FFFF) + 1
    for at in range(height):
        context.store(address + at * pitch, line)


_PIXEL = (1, 2, 4, 8, 12, 16, 4, 4)


def _rectangle(low: int, high: int) -> tuple[int, int, int, int]:
    return low & 0xFFFF, low >> 16, high & 0xFFFF, high >> 16


def _fast_color(context: Context, words: Words) -> None:
    pixel = _PIXEL[words[0] >> 19 & 7]
    pitch, address = (words[1] & 0x3FFFF) + 1, _full(words[4], words[5])
    x1, y1, x2, y2 = _rectangle(words[2], words[3])
    color = struct.pack("<4I", *words[7:11])[:pixel]
    for y in range(y1, y2):
        context.store(address + y * pitch + x1 * pixel, color * (x2 - x1))


def _fast_copy(context: Context, words: Words) -> None:
    pixel = (1, 2, 4, 4, 8, 16, 4, 4)[words[1] >> 24 & 7]
    x1, y1, x2, y2 = _rectangle(words[2], words[3])
    target_pitch, source_pitch = words[1] & 0xFFFF, words[7] & 0xFFFF
    target = _full(words[4], words[5]) + y1 * target_pitch + x1 * pixel
    source_x, source_y = words[6] & 0xFFFF, words[6] >> 16
    source = _full(words[8], words[9]) + source_y * source_pitch + source_x * pixel
    shape = (y2 - y1, source_pitch, target_pitch)
    _copy_lines(context, source, target, (x2 - x1) * pixel, shape)


def _block_copy(context: Context, words: Words) -> None:
    pixel = _PIXEL[words[0] >> 19 & 7]
    x1, y1, x2, y2 = _rectangle(words[2], words[3])
    target_pitch, source_pitch = (words[1] & 0x3FFFF) + 1, (words[8] & 0x3FFFF) + 1
    target = _full(words[4], words[5]) + y1 * target_pitch + x1 * pixel
    source_x, source_y = words[7] & 0xFFFF, words[7] >> 16
    source = _full(words[9], words[10]) + source_y * source_pitch + source_x * pixel
    shape = (y2 - y1, source_pitch, target_pitch)
    _copy_lines(context, source, target, (x2 - x1) * pixel, shape)


TABLE: dict[int, Handler] = {
    0x00: _nothing,  # MI_NOOP
    0x02: _user_interrupt,
    0x03: _nothing,  # MI_WAIT_FOR_EVENT
    0x05: _nothing,  # MI_ARB_CHECK
    0x08: _nothing,  # MI_ARB_ON_OFF
    0x09: _nothing,  # MI_MEM_FENCE
    0x0A: _batch_end,
    0x0B: _nothing,  # MI_SUSPEND_FLUSH
    0x0D: _nothing,  # MI_TOPOLOGY_FILTER
    0x0E: _nothing,  # MI_SET_APPID
    0x1A: _math,
    0x1C: _semaphore_wait,
    0x1D: _nothing,  # MI_FORCE_WAKEUP
    0x20: _store_data,
    0x22: _load_register_imm,
    0x24: _store_register,
    0x26: _flush,
    0x29: _load_register_mem,
    0x2A: _load_register_reg,
    0x2E: _copy_mem_mem,
    0x2F: _atomic,
    0x31: _batch_start,
    0x36: _conditional_end,
    0x39: _batch_start,  # PRT_BATCH_BUFFER_START
    0x241: _block_copy,
    0x242: _fast_copy,
    0x244: _fast_color,
    0x248: _nothing,  # XY_CTRL_SURF_COPY_BLT: compression metadata
    0x25A: _mem_copy,
    0x25B: _mem_set,
    0x3_1A00: _pipe_control,
}
