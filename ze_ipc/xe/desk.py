"""The desk of an xe device; see ze_ipc.desk."""

from __future__ import annotations

import threading
from array import array
from typing import Any

from ze_ipc._xe import ffi, lib
from ze_ipc.desk import DeskEvent, DeskEventKind, DeskRules
from ze_ipc.errors import OutOfHostMemory
from ze_ipc.xe.device import Device, nanoseconds

_ROOM = int(lib.DESK_ROOM)
_KINDS = tuple(
    DeskEventKind(int(kind))
    for kind in (lib.DESK_READY, lib.DESK_STRANGER, lib.DESK_ASKED, lib.DESK_HEARD)
)
_READY = int(lib.DESK_READY)


class XeDesk:
    """Keeps its device open until free(); implements ``ze_ipc.desk.Desk``."""

    def __init__(self, device: Device, epoll: int, rules: DeskRules) -> None:
        self._device = device
        self._kept: dict[int, tuple[Any, ...]] = {}
        """The buffers that the C side looks at, by generation."""
        self._leaving: dict[int, int] = {}
        """Streams that go on, of generations that were withdrawn."""
        self._lock = threading.Lock()
        self._events = ffi.new("struct desk_event[]", _ROOM)
        pointer = device.__enter__()
        try:
            self._pointer = lib.xe_desk_create(pointer, _rules(rules), epoll)
            if self._pointer == ffi.NULL:
                raise OutOfHostMemory("no memory for a desk", call="Broker")
        except BaseException:
            device.__exit__()
            raise

    def offer(
        self, generation: int, handle: bytes, head: bytes, manifest: bytes, objects: array[int]
    ) -> None:
        """Answer for an export."""
        view = ffi.from_buffer
        name, first, body = view(handle), view(head), view(manifest)
        column = view("uint64_t[]", objects)
        what = ffi.new(
            "struct desk_export *",
            (generation, name, first, len(head), body, len(manifest), column, len(objects)),
        )
        self._kept[generation] = name, first, body, column
        if lib.desk_offer(self._pointer, what):
            # The broker closes, or memory is short: Python answers.
            del self._kept[generation]

    def withdraw(self, generation: int, *, interrupt: bool) -> int:
        """Answer for it no more; how many streams of it go on."""
        if generation not in self._kept:
            return 0
        going_on = max(0, int(lib.desk_withdraw(self._pointer, generation, interrupt)))
        self._count(generation, going_on)
        return going_on

    def wait(self, listening: int, timeout: float | None) -> list[DeskEvent]:
        """Accept and answer until there is something for the broker."""
        events = self._events
        limit = -1 if timeout is None else int(min(timeout, 1e9) * 1e9)
        count = lib.desk_wait(self._pointer, listening, limit, events, _ROOM)
        if count < 0:
            raise OSError(-count, "epoll_wait")
        return [self._event(events[index]) for index in range(count)]

    def _event(self, event: Any) -> DeskEvent:
        kind = event.kind
        if kind == _READY:
            return DeskEvent(_KINDS[kind], event.fd)
        ended, length = bool(event.ended), event.length
        if ended:
            self._count(event.generation, -1)
        return DeskEvent(
            _KINDS[kind],
            event.fd,
            (event.pid, event.uid, event.gid),
            bytes(ffi.buffer(event.message, max(0, length))),
            max(0, -length),
            event.generation,
            ended,
        )

    def _count(self, generation: int, change: int) -> None:
        """Streams of a withdrawn generation that go on: one may end before withdraw() counts."""
        with self._lock:
            left = self._leaving.pop(generation, 0) + change
            if left:
                self._leaving[generation] = left
            else:
                self._kept.pop(generation, None)

    @property
    def answered(self) -> int:
        """How many peers it has answered."""
        return int(lib.desk_answered(self._pointer))

    def close(self, deadline: float) -> bool:
        """Answer nobody any more; whether the streams ended in time."""
        return bool(lib.desk_close(self._pointer, nanoseconds(deadline)))

    def abandon(self) -> None:
        """Close every descriptor."""
        lib.desk_abandon(self._pointer)

    def free(self) -> None:
        """Give everything back."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            lib.desk_free(pointer)
            self._kept.clear()
            self._device.__exit__()


def _rules(rules: DeskRules) -> Any:
    return ffi.new(
        "struct desk_rules *",
        {
            "magic": rules.magic,
            "skip_objects": rules.skip_objects,
            "first": rules.first,
            "rest": rules.rest,
            "heard": rules.heard,
            "streams": rules.streams,
            "streams_a_peer": rules.streams_a_peer,
            "early": int(rules.early_seconds * 1e9),
            "last_word": int(rules.last_word_seconds * 1e9),
            "patience": int(rules.patience_seconds * 1e9),
            "stream": int(rules.stream_seconds * 1e9),
            "stream_an_object": int(rules.stream_seconds_an_object * 1e9),
        },
    )
