"""Long manifests in one C call, whatever their length."""

from __future__ import annotations

import errno
from typing import Any

from ze_ipc._xe import ffi, lib
from ze_ipc.xe.device import nanoseconds


def send_bytes(socket: int, data: memoryview, message: int, deadline: float) -> int:
    """Send ``data`` in messages of ``message`` bytes: 0 or -errno."""
    return _run(lib.byte_stream_send, socket, ffi.from_buffer(data), len(data), message, deadline)


def receive_bytes(socket: int, into: memoryview, message: int, deadline: float) -> int:
    """Fill ``into`` from such messages: 0 or -errno, -EBADMSG if one has another size."""
    room = ffi.from_buffer(into, require_writable=True)
    return _run(lib.byte_stream_receive, socket, room, len(into), message, deadline)


def _run(call: Any, socket: int, data: Any, size: int, message: int, deadline: float) -> int:
    pointer = ffi.cast("uint8_t *", data)
    stream = ffi.new(
        "struct byte_stream *", (socket, pointer, size, message, nanoseconds(deadline), 0)
    )
    rc = -errno.EINTR
    while rc == -errno.EINTR:
        rc = int(call(stream))
    return rc
