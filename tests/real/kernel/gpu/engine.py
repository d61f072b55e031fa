"""Contexts and the command streamer: a ring in the global table, batches in either table.

The context image ("LRC") is a status page followed by registers as (offset, value) pairs; the
indices below count dwords from its second page. All contexts run on one thread, a slice each, so
a batch that polls memory or never ends stops nobody else.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from .commands import CTX_TIMESTAMP, GPR_BASE, TABLE, TIMESTAMP, Wait, key, length
from .memory import PAGE, Fault, GlobalTable, Memory, ProcessTable

RING_HEAD, RING_TAIL, RING_START, RING_CTL = 0x05, 0x07, 0x09, 0x0B
CTX_TIMESTAMP_LOW, CTX_TIMESTAMP_HIGH = 0x23, 0x25
ASID = 0x2F
PDP0_HIGH, PDP0_LOW = 0x31, 0x33
STATUS_REPORT, SOURCE_REPORT = 0x57, 0x59
COUNTER_CONTROL, COUNTER_LIMIT = 0x178, 0x17C
CLOCK_HZ = 19_200_000
SLICE = 2000
"""Commands a context may execute before the others get their turn."""

_U32 = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class EngineClass:
    """One hardware engine class as GuC numbers it; `vector` is its interrupt offset."""

    name: str
    base: int
    vector: int


ENGINES = {
    0: EngineClass("rcs", 0x002000, 0),
    1: EngineClass("vcs", 0x1C0000, 32),
    2: EngineClass("vecs", 0x1C8000, 63),
    3: EngineClass("bcs", 0x022000, 15),
    4: EngineClass("ccs", 0x01A000, 4),
    5: EngineClass("gsccs", 0x11A000, 31),
}


class Outcome(Enum):
    """What one slice of a context led to."""

    IDLE = "the ring is empty"
    RUNNING = "there is more to do"
    WAITING = "a semaphore is not satisfied"
    FAULT = "an access found no page"


@dataclass(slots=True)
class Context:
    """One registered context; `batches` is the stack of (address, in the process table)."""

    id: int
    engine: EngineClass
    image: int
    memory: Memory
    ggtt: GlobalTable
    interrupt: Callable[[], None]
    enabled: bool = False
    registers: dict[int, int] = field(default_factory=dict)
    batches: list[tuple[int, bool]] = field(default_factory=list)
    ppgtt: ProcessTable | None = None
    fault: Fault | None = None
    jobs: int = 0
    _started: float = field(default_factory=time.monotonic)

    @property
    def status_page(self) -> int:
        return self.image

    def register_word(self, index: int) -> int:
        value: int = _U32.unpack(self.ggtt.read(self.image + PAGE + 4 * index, 4))[0]
        return value

    def set_register_word(self, index: int, value: int) -> None:
        self.ggtt.write(self.image + PAGE + 4 * index, _U32.pack(value & 0xFFFF_FFFF))

    def run(self) -> Outcome:
        """Executes up to SLICE commands and saves the ring head and the clock in the image."""
        root = self.register_word(PDP0_HIGH) << 32 | self.register_word(PDP0_LOW)
        self.ppgtt = ProcessTable(self.memory, root)
        start = self.register_word(RING_START) & ~0xFFF
        size = (self.register_word(RING_CTL) & 0x1FF000) + PAGE
        head = self.register_word(RING_HEAD) & 0x1FFFFC
        outcome = Outcome.RUNNING
        for _ in range(SLICE):
            if not self.batches:
                tail = self.register_word(RING_TAIL) & 0x1FFFF8
                if head == tail:
                    outcome = Outcome.IDLE
                    break
            try:
                if self.batches:
                    self._step_batch()
                else:
                    head = self._step_ring(start, size, head)
            except Wait:
                outcome = Outcome.WAITING
                break
            except Fault as fault:
                self.fault, outcome = fault, Outcome.FAULT
                break
        self.set_register_word(RING_HEAD, head)
        low, high = self.clock_words()
        self.set_register_word(CTX_TIMESTAMP_LOW, low)
        self.set_register_word(CTX_TIMESTAMP_HIGH, high)
        return outcome

    def _step_ring(self, start: int, size: int, head: int) -> int:
        first = _U32.unpack(self.ggtt.read(start + head, 4))[0]
        count = length(first)
        words = tuple(
            _U32.unpack(self.ggtt.read(start + (head + 4 * at) % size, 4))[0] for at in range(count)
        )
        self._execute(words)
        return (head + 4 * count) % size

    def _step_batch(self) -> None:
        address, in_ppgtt = self.batches[-1]
        first = _U32.unpack(self.load(address, 4, not in_ppgtt))[0]
        count = length(first)
        words = (first,)
        if count > 1:
            words = struct.unpack(f"<{count}I", self.load(address, 4 * count, not in_ppgtt))
        depth = len(self.batches)
        self.batches[-1] = (address + 4 * count, in_ppgtt)
        try:
            self._execute(words)
        except (Wait, Fault):
            self.batches[depth - 1] = (address, in_ppgtt)
            raise

    def _execute(self, words: tuple[int, ...]) -> None:
        row = key(words[0])
        handler = TABLE.get(row)
        if handler is not None:
            handler(self, words)
        elif row < 0x3_0000:
            print(f"gpu: {self.engine.name} command {words[0]:#010x} skipped", flush=True)

    def load(self, address: int, size: int, in_ggtt: bool = False) -> bytes:
        if in_ggtt or self.ppgtt is None:
            return self.ggtt.read(address, size)
        return self.ppgtt.read(address, size)

    def store(self, address: int, data: bytes, in_ggtt: bool = False) -> None:
        if in_ggtt or self.ppgtt is None:
            self.ggtt.write(address, data)
        else:
            self.ppgtt.write(address, data)

    def enter_batch(self, address: int, ppgtt: bool, nested: bool) -> None:
        # A program's batch stays in its address space, whatever it says.
        ppgtt = ppgtt or bool(self.batches and self.batches[-1][1])
        if self.batches and not nested:
            self.batches.pop()  # chained: nobody returns to the batch that jumped
        else:
            self.jobs += 1
        self.batches.append((address, ppgtt))

    def leave_batch(self, all_levels: bool = False) -> None:
        if all_levels:
            self.batches.clear()
        elif self.batches:
            self.batches.pop()

    def raise_user_interrupt(self) -> None:
        """Reports bit 0 of this engine's vector in the memory-based interrupt page."""
        status = self.register_word(STATUS_REPORT) & ~0xFFF
        source = self.register_word(SOURCE_REPORT)
        self.ggtt.write(status + 16 * self.engine.vector, b"\xff")
        self.ggtt.write(source + self.engine.vector, b"\xff")
        self.interrupt()

    def clock_words(self) -> tuple[int, int]:
        ticks = int((time.monotonic() - self._started) * CLOCK_HZ)
        return ticks & 0xFFFF_FFFF, ticks >> 32

    def _relative(self, register: int, relative: bool) -> int:
        register &= 0x7F_FFFC
        return register if relative or register < self.engine.base else register - self.engine.base

    def get_register(self, register: int, relative: bool) -> int:
        at = self._relative(register, relative)
        if at in (CTX_TIMESTAMP, TIMESTAMP):
            return self.clock_words()[0]
        if at in (CTX_TIMESTAMP + 4, TIMESTAMP + 4):
            return self.clock_words()[1]
        return self.registers.get(at, 0)

    def set_register(self, register: int, value: int, relative: bool) -> None:
        self.registers[self._relative(register, relative)] = value

    @property
    def counter_armed(self) -> bool:
        """The driver limits its next wait with the ring's counter (its control is 0, not 1)."""
        return self.registers.get(COUNTER_CONTROL) == 0 and COUNTER_LIMIT in self.registers

    def get_gpr(self, index: int) -> int:
        low = self.registers.get(GPR_BASE + 8 * index, 0)
        return low | self.registers.get(GPR_BASE + 8 * index + 4, 0) << 32

    def set_gpr(self, index: int, value: int) -> None:
        self.registers[GPR_BASE + 8 * index] = value & 0xFFFF_FFFF
        self.registers[GPR_BASE + 8 * index + 4] = value >> 32
