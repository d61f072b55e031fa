"""One GT's firmware ("GuC") as a virtual function sees it: mailbox, transport, actions.

A message is an "HXG" dword (bit 31 origin, bits 28..30 type, bits 0..27 payload) and data dwords.
The mailbox carries four dwords in registers; the command transport is a pair of rings in the
global table, each message preceded by a header with its fence and length. Actions are two tables:
MAILBOX for the registers, TRANSPORT for the rings; an unknown action fails and prints one line.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from .engine import ENGINES, Context, Outcome
from .memory import Fault, GlobalTable, Memory
from .profiles import HWCONFIG, Profile

TRACE = bool(os.environ.get("ZE_IPC_TRACE_GPU"))
"""One line for every message and every slice, for whoever has to find out why a driver waits."""

ORIGIN_GUC = 1 << 31
REQUEST, EVENT, FAST_REQUEST, FAILURE, SUCCESS = 0, 1, 2, 6, 7
GUC_VERSION = (0, 1, 13, 0)
GUC_TO_HOST = 15
"""The bit of the interrupt vector by which GuC says that the transport has messages."""

MODE_DONE = 0x1002
CONTEXT_RESET = 0x1008
DEREGISTERED = 0x4600
RELAY_FROM_PF = 0x5102
CAT_ERROR = 0x6000
TLB_DONE = 0x7001
UNKNOWN_ACTION = 0x30
"""The error code of a failure response; any non-zero value does."""


def hxg(kind: int, payload: int = 0) -> int:
    return ORIGIN_GUC | kind << 28 | payload & 0x0FFF_FFFF


@dataclass(slots=True)
class Ring:
    """One direction of the transport; addresses are in the global table, positions in dwords."""

    descriptor: int = 0
    buffer: int = 0
    size: int = 0


@dataclass(slots=True)
class Guc:
    """One GuC: `notify` after its doorbell, `run` gives every busy context a slice."""

    media: bool
    profile: Profile
    memory: Memory
    ggtt: GlobalTable
    raise_msi: Callable[[], None]
    mailbox: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    request_pending: bool = False
    transport: bool = False
    to_guc: Ring = field(default_factory=Ring)
    to_host: Ring = field(default_factory=Ring)
    status_address: int = 0
    source_address: int = 0
    contexts: dict[int, Context] = field(default_factory=dict)
    busy: dict[int, Outcome] = field(default_factory=dict)
    jobs: int = 0

    @property
    def name(self) -> str:
        return "media guc" if self.media else "guc"

    def reset(self) -> None:
        """Back to the state after a function-level reset."""
        self.transport = False
        self.to_guc, self.to_host = Ring(), Ring()
        self.contexts.clear()
        self.busy.clear()

    # The mailbox.

    def write_mailbox(self, index: int, value: int) -> None:
        self.mailbox[index] = value
        if index == 0:
            self.request_pending = True

    def notify(self) -> None:
        if self.request_pending and not self.mailbox[0] & ORIGIN_GUC:
            self.request_pending = False
            self._serve_mailbox()
        if self.transport:
            self._serve_transport()

    def _serve_mailbox(self) -> None:
        request = list(self.mailbox)
        action = MAILBOX.get(request[0] & 0xFFFF)
        if action is None:
            print(f"{self.name}: unknown mailbox action {request[0] & 0xFFFF:#06x}", flush=True)
            self.mailbox[:] = [hxg(FAILURE, UNKNOWN_ACTION), 0, 0, 0]
            return
        data0, *rest = action(self, request)
        self.mailbox[:] = [hxg(SUCCESS, data0), *rest, 0, 0, 0][:4]

    def _vf_reset(self, request: list[int]) -> list[int]:
        self.reset()
        return [0]

    def _match_version(self, request: list[int]) -> list[int]:
        branch, major, minor, patch = GUC_VERSION
        return [0, branch << 24 | major << 16 | minor << 8 | patch]

    def _query_klv(self, request: list[int]) -> list[int]:
        profile = self.profile
        words: dict[int, tuple[int, int]] = {
            0x0001: (2, profile.ggtt_start),
            0x0002: (2, profile.ggtt_size),
            0x0003: (2, profile.vram_size),
            0x0004: (1, 32768),  # contexts
            0x0005: (1, 1),  # tiles
            0x0006: (1, 256),  # doorbells
            0x3000: (1, profile.gmd_id(self.media)),
            0x3001: (1, 0),  # scheduling groups
        }
        size, value = words.get(request[1] & 0xFFFF, (0, 0))
        if not size:
            print(f"{self.name}: unknown configuration key {request[1] & 0xFFFF:#06x}", flush=True)
        return [size, value & 0xFFFF_FFFF, value >> 32]

    def _self_config(self, request: list[int]) -> list[int]:
        name = request[1] >> 16
        value = request[2] | (request[3] << 32 if request[1] & 0xFFFF == 2 else 0)
        if name == 0x900:
            self.status_address = value
        elif name == 0x901:
            self.source_address = value
        elif name in (0x902, 0x905):
            (self.to_guc if name == 0x902 else self.to_host).buffer = value
        elif name in (0x903, 0x906):
            (self.to_guc if name == 0x903 else self.to_host).descriptor = value
        elif name in (0x904, 0x907):
            (self.to_guc if name == 0x904 else self.to_host).size = value // 4
        else:
            print(f"{self.name}: unknown self-configuration key {name:#06x}", flush=True)
            return [0]
        return [1]

    def _control_transport(self, request: list[int]) -> list[int]:
        self.transport = bool(request[1])
        return [0]

    def _get_hwconfig(self, request: list[int]) -> list[int]:
        size = request[3]
        if size:
            self.ggtt.write(request[1], HWCONFIG[:size])
        return [len(HWCONFIG)]

    # The command transport.

    def _serve_transport(self) -> None:
        ring = self.to_guc
        head, tail = struct.unpack("<II", self.ggtt.read(ring.descriptor, 8))
        while head != tail:
            header = self._word(ring, head)
            count = header & 0xFF
            head = (head + 1) % ring.size
            if count:
                message = [self._word(ring, (head + at) % ring.size) for at in range(count)]
                head = (head + count) % ring.size
                self._serve_message(header >> 16, message)
            if not self.transport:
                return
            self.ggtt.write(ring.descriptor, struct.pack("<I", head))
            tail = struct.unpack("<I", self.ggtt.read(ring.descriptor + 4, 4))[0]

    def _word(self, ring: Ring, at: int) -> int:
        value: int = struct.unpack("<I", self.ggtt.read(ring.buffer + 4 * at, 4))[0]
        return value

    def _serve_message(self, fence: int, message: list[int]) -> None:
        kind, code = message[0] >> 28 & 7, message[0] & 0xFFFF
        action = TRANSPORT.get(code)
        if TRACE:
            print(
                f"{self.name}: {kind} {code:#06x} {[hex(word) for word in message[1:]]}", flush=True
            )
        if action is None:
            print(f"{self.name}: unknown action {code:#06x} {message[1:]}", flush=True)
            if kind != EVENT:
                self._send(fence, [hxg(FAILURE, UNKNOWN_ACTION)])
            return
        answer = action(self, message)
        if kind == REQUEST:
            self._send(fence, [hxg(SUCCESS, answer or 0)])

    def event(self, action: int, *data: int) -> None:
        self._send(0, [hxg(EVENT, action), *data])

    def _send(self, fence: int, message: list[int]) -> None:
        ring = self.to_host
        if not ring.size:
            return
        tail = struct.unpack("<I", self.ggtt.read(ring.descriptor + 4, 4))[0]
        for word in (fence << 16 | len(message), *message):
            self.ggtt.write(ring.buffer + 4 * tail, struct.pack("<I", word))
            tail = (tail + 1) % ring.size
        self.ggtt.write(ring.descriptor + 4, struct.pack("<I", tail))
        self.ggtt.write(self.status_address + GUC_TO_HOST, b"\xff")
        self.ggtt.write(self.source_address, b"\xff")
        self.raise_msi()

    def _relay_to_pf(self, message: list[int]) -> int:
        relay, request = message[1], message[2:]
        action = request[0] & 0xFFFF
        # The physical function's answer has the *host* as its origin.
        if action == 0x0001:
            answer = [SUCCESS << 28, 1 << 16]
        elif action == 0x0101:
            limit, start = request[0] >> 16 & 0xFFF, request[1]
            registers = self.profile.runtime(self.media)
            part = registers[start : start + (limit or 16)]
            answer = [SUCCESS << 28 | len(part), len(registers) - start - len(part)]
            for pair in part:
                answer.extend(pair)
        else:
            print(f"{self.name}: unknown relay action {action:#06x}", flush=True)
            answer = [FAILURE << 28 | 56]
        self.event(RELAY_FROM_PF, relay, *answer)
        return 0

    def _accept(self, message: list[int]) -> int:
        """Policies and options: they change timing, which we do not model."""
        return 0

    def _register_context(self, message: list[int]) -> int:
        ident, engine, image = message[2], message[3], message[10] & ~0xFFF
        self.contexts[ident] = Context(
            ident, ENGINES[engine], image, self.memory, self.ggtt, self.raise_msi
        )
        return 0

    def _schedule_mode(self, message: list[int]) -> int:
        ident, enable = message[1], message[2]
        context = self.contexts.get(ident)
        if context is not None:
            context.enabled = bool(enable)
            if enable:
                self.busy[ident] = Outcome.RUNNING
            else:
                self.busy.pop(ident, None)
        self.event(MODE_DONE, ident, enable)
        return 0

    def _schedule(self, message: list[int]) -> int:
        context = self.contexts.get(message[1])
        if context is not None and context.enabled:
            self.busy[context.id] = Outcome.RUNNING
        return 0

    def _deregister(self, message: list[int]) -> int:
        context = self.contexts.pop(message[1], None)
        if context is not None:
            self.jobs += context.jobs
        self.busy.pop(message[1], None)
        self.event(DEREGISTERED, message[1])
        return 0

    def _invalidate_tlb(self, message: list[int]) -> int:
        self.event(TLB_DONE, message[1])
        return 0

    # Execution.

    def run(self) -> bool:
        """Gives every busy context one slice; True if one of them could run on at once."""
        again = False
        for ident in list(self.busy):
            context = self.contexts[ident]
            outcome = context.run()
            if TRACE:
                print(f"{self.name}: context {ident} {context.engine.name}: {outcome}", flush=True)
            if outcome is Outcome.IDLE:
                self.busy.pop(ident, None)
            elif outcome is Outcome.FAULT:
                self._report_fault(context)
            else:
                self.busy[ident] = outcome
                again = again or outcome is Outcome.RUNNING
        return again

    def _report_fault(self, context: Context) -> None:
        print(
            f"{self.name}: context {context.id} {context.engine.name}: {context.fault}", flush=True
        )
        self.busy.pop(context.id, None)
        context.batches.clear()
        context.enabled = False
        self.event(CAT_ERROR, context.id)
        self.event(CONTEXT_RESET, context.id)

    def serve_safely(self) -> None:
        """`notify`, with a fault in the driver's own rings reported instead of raised."""
        try:
            self.notify()
        except Fault as fault:
            print(f"{self.name}: transport: {fault}", flush=True)


MAILBOX: dict[int, Callable[[Guc, list[int]], list[int]]] = {
    0x0508: Guc._self_config,
    0x4100: Guc._get_hwconfig,
    0x4509: Guc._control_transport,
    0x5500: Guc._match_version,
    0x5507: Guc._vf_reset,
    0x5509: Guc._query_klv,
}

TRANSPORT: dict[int, Callable[[Guc, list[int]], int]] = {
    0x0506: Guc._accept,  # global scheduling policy
    0x0509: Guc._accept,  # scheduling policies
    0x1000: Guc._schedule,
    0x1001: Guc._schedule_mode,
    0x100B: Guc._accept,  # context policies
    0x4502: Guc._register_context,
    0x4503: Guc._deregister,
    0x5103: Guc._relay_to_pf,
    0x550C: Guc._accept,  # engine activity buffers
    0x550D: Guc._accept,
    0x550E: Guc._accept,  # optional features
    0x7000: Guc._invalidate_tlb,
    0x7002: Guc._invalidate_tlb,
}
