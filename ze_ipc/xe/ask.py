"""Asking a broker in one C call; see Backend.ask_broker. The devices have no part in it."""

from __future__ import annotations

from array import array
from typing import Any

from ze_ipc._xe import ffi, lib
from ze_ipc.backend import Asked
from ze_ipc.xe.device import nanoseconds

_MESSAGE = (32 << 10) + 64
"""Bytes: more than the longest answer."""
_EINTR = -4

_spare: list[tuple[Any, Any, Any]] = []
"""Structures that nobody uses now: a new one costs more than all else here."""


def ask_broker(
    directory: str, name: str, request: bytes, objects: bool, deadline: float
) -> Asked | int:
    """The answer, or -errno."""
    try:
        spare = _spare.pop()
    except IndexError:
        message = ffi.new("uint8_t[]", _MESSAGE)
        spare = ffi.new("struct ask *"), message, ffi.buffer(message)
        spare[0].message, spare[0].room = message, _MESSAGE
    ask, _message, content = spare
    keep = ffi.from_buffer(directory.encode() + b"\0"), ffi.from_buffer(name.encode() + b"\0")
    ask.directory, ask.name = keep
    ask.request = request
    ask.objects, ask.socket, ask.asked = objects, -1, 0
    ask.length = ask.count = ask.greeted = 0
    ask.deadline = nanoseconds(deadline)
    rc = _EINTR
    try:
        while rc == _EINTR:
            rc = lib.ask_broker(ask)
    except BaseException:
        # A signal handler raised.
        if ask.socket >= 0:
            lib.fds_close(ffi.new("int32_t[]", [ask.socket]), 1)
        raise
    fds: array[int] = array("i")
    if rc == 0:
        if ask.count:
            fds.frombytes(ffi.buffer(ask.fds, 4 * ask.count))
        room = ask.request[6] + 256 * ask.request[7]
        answer = Asked(
            ask.socket, room, content[: ask.length], fds, bool(ask.lost), bool(ask.greeted)
        )
    _spare.append(spare)
    return answer if rc == 0 else int(rc)
