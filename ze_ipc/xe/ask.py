"""An importer's question to a broker, and all that follows for a few objects, by one C call."""

from __future__ import annotations

import contextlib
import errno
from array import array
from typing import Any

from ze_ipc import _held
from ze_ipc._xe import ffi, lib
from ze_ipc.backend import Asked, Opened, Opening
from ze_ipc.errors import ZeIpcError
from ze_ipc.xe import held
from ze_ipc.xe.bind import AddressSpace
from ze_ipc.xe.device import nanoseconds
from ze_ipc.xe.va import VaHeap

_MESSAGE = (32 << 10) + 64
"""Bytes: more than the longest answer."""
_EINTR = -errno.EINTR


class BrokerQuestion:
    """A question that a broker was asked. One finish() or close() ends it.

    Its structures are used again, for new ones cost more than all else here.
    """

    __slots__ = ("_keep", "_names", "address", "ask", "content", "open", "state")

    def __init__(self) -> None:
        self.state = ffi.new("struct xe_ask_open *")
        self.address = int(ffi.cast("uintptr_t", self.state))
        self.ask = self.state.ask
        self.open = self.state.open
        message = ffi.new("uint8_t[]", _MESSAGE)
        self.content = ffi.buffer(message)
        self.ask.message, self.ask.room = message, _MESSAGE
        self._names: tuple[str, str] | None = None
        self._keep: tuple[Any, ...] = (message,)

    def start(
        self, directory: str, name: str, request: bytes, objects: bool, deadline: float
    ) -> int:
        """Put it: 0 or -errno."""
        ask, names = self.ask, (directory, name)
        if names != self._names:
            self._keep = *self._keep[:1], *(ffi.new("char[]", text.encode()) for text in names)
            _, ask.directory, ask.name = self._keep
            self._names = names
        ask.request = request
        ask.objects, ask.socket = objects, -1
        ask.length = ask.count = ask.greeted = ask.asked = self.state.opened = 0
        ask.deadline = nanoseconds(deadline)
        ask.patience = 0
        return _held.call(_START, 0, self.address)

    def finish(self) -> Asked | int:
        """The answer, or -errno."""
        ask = ffi.addressof(self.state, "ask")
        try:
            ask.patience = held.patience()
            rc = _held.call(_ASK, 0, self.address)
            ask.patience = 0
            while rc == _EINTR:
                rc = lib.ask_broker(ffi.NULL, ask)
        except BaseException:
            # A signal handler raised.
            self.close()
            raise
        return self.answered(rc)

    def answered(self, rc: int, opened: Opened | None = None) -> Asked | int:
        """What came; from then on it may be used again."""
        if rc:
            _spare.append(self)
            return rc
        ask = self.ask
        fds: array[int] = array("i")
        if ask.count:
            fds.frombytes(ffi.buffer(ask.fds, 4 * ask.count))
        room = ask.request[6] + 256 * ask.request[7]
        message = self.content[: ask.length]
        answer = Asked(ask.socket, room, message, fds, bool(ask.lost), bool(ask.greeted), opened)
        _spare.append(self)
        return answer

    def close(self) -> None:
        """End a conversation that has no answer yet."""
        if self.ask.socket >= 0:
            lib.fds_close(ffi.new("int32_t[]", [self.ask.socket]), 1)
            self.ask.socket = -1
        lib.fds_close(self.ask.fds, self.ask.count)
        self.ask.count = 0


def start_asking(
    directory: str, name: str, request: bytes, objects: bool, deadline: float
) -> BrokerQuestion | int:
    """A question that is on its way, or -errno."""
    question = _spare.pop() if _spare else BrokerQuestion()
    rc = question.start(directory, name, request, objects, deadline)
    if rc == 0:
        return question
    _spare.append(question)
    return rc


def tell(socket: int, directory: str, name: str, message: bytes) -> int:
    """Send one message and close, without waiting and without giving up the GIL: 0 or -errno.
    ``socket`` -1 is a new connection to a broker.
    """
    names = ffi.new("char[]", directory.encode()), ffi.new("char[]", name.encode())
    what = ffi.new("struct tell *", (*names, socket, len(message), message))
    return held.call(_TELL, ffi.NULL, what)


def finish_and_open(
    question: BrokerQuestion, space: AddressSpace, heap: VaHeap, page_size: int, opening: Opening
) -> Asked | int:
    """The answer, or -errno; where all that follows could be done at once, it has ``opened``."""
    state, what, pat = question.state, question.open, space.pat
    what.vm_id, what.pat_own, what.pat_imported = space.vm_id, pat.own, pat.imported
    state.page_size, state.phase_size = page_size, opening.phase_size
    state.reserve, state.last_word = opening.reserve, opening.last_word
    ground = heap.lend()
    state.ground, state.ground_size = ground[0], ground[1] - ground[0]
    with space.device as pointer:
        try:
            question.ask.patience = held.patience()
            device = int(ffi.cast("uintptr_t", pointer))
            rc = _held.call(_ASK_AND_OPEN, device, question.address)
            if rc == _EINTR:
                rc = _go_on(pointer, state)
            if rc and state.opened:
                raise space.error(rc)
        except BaseException:
            _undo(space, heap, ground, question, pointer)
            raise
    if not state.opened:
        heap.settle(ground, 0, 0)
        return question.answered(rc)
    base, room = what.address, state.taken
    heap.settle(ground, base, room)
    objects = array("Q", ffi.buffer(state.objects, 8 * what.num_objects)[:])
    times = what.import_time / 1e9, state.open_time / 1e9
    return question.answered(rc, Opened(objects, base, room, *times))


def _go_on(pointer: Any, state: Any) -> int:
    """Patience is over: the rest without the GIL."""
    state.ask.patience = 0
    rc = _EINTR
    while rc == _EINTR and not state.opened:
        rc = lib.xe_ask_open(pointer, state)
    while rc == _EINTR:
        rc = lib.xe_fence_wait(pointer, state.open.fence, state.open.deadline)
    if rc == 0 and state.opened and state.open.fence != ffi.NULL:
        lib.xe_fence_destroy(pointer, state.open.fence)
        state.open.fence = ffi.NULL
    return int(rc)


def _undo(
    space: AddressSpace,
    heap: VaHeap,
    ground: tuple[int, int],
    question: BrokerQuestion,
    pointer: Any,
) -> None:
    """It failed in the middle, or a signal handler raised."""
    state, what = question.state, question.open
    question.close()
    address, size = what.address, state.taken if state.opened else 0
    if size:
        lib.xe_fence_destroy(pointer, what.fence)
        lib.xe_objects_release(pointer, state.objects, what.num_objects, ffi.new("uint64_t *"))
        # Where it cannot be undone it is remembered as stuck; what is raised is why.
        with contextlib.suppress(ZeIpcError):
            space.undo(address, address + what.size)
    heap.settle(ground, address, size)
    if size and not space.is_stuck(address, size):
        heap.release(address, size)


_ASK_AND_OPEN = held.function("xe_ask_open")
_ASK = held.function("ask_broker")
_START = held.function("ask_start")
_TELL = held.function("ask_tell")
_spare: list[BrokerQuestion] = []
