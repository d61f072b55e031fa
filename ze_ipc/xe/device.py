"""An open device file: the C side's pointer, who uses it, and its ioctls with their errors."""

from __future__ import annotations

import errno
import os
import threading
from array import array
from typing import Any

from ze_ipc._xe import ffi, lib
from ze_ipc.errors import AccessDenied, Closed, DeviceNotVisible, ForkedProcess, ZeIpcError
from ze_ipc.xe.errors import kernel_error

trace_fd: int | None = None
"""Where devices that are opened from now on record their ioctls (``ze_ipc.trace``), or None."""


class Device:
    """Owns a ``struct xe_device``; ``with device as pointer`` keeps it open for the block.

    close() lets the blocks that run in other threads finish: the last one out closes the file.
    """

    def __init__(self, ops: Any, path: str) -> None:
        error = ffi.new("int *")
        if trace_fd is not None:
            ops = lib.xe_trace_ops(ops, trace_fd)
        pointer = lib.xe_device_open(ops, path.encode(), error)
        if pointer == ffi.NULL:
            raise _open_error(-error[0], path)
        self.path = path
        self._pointer = pointer
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._users = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def check(self) -> None:
        """Raise when the device is closed or was opened before a fork."""
        if os.getpid() != self._pid:
            raise ForkedProcess(pid=os.getpid(), opened_by=self._pid)
        if self._closed:
            raise Closed(f"device {self.path} is closed")

    def __enter__(self) -> Any:
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                self.check()
            self._users += 1
        return self._pointer

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and self._users == 0
        if last:  # as it is closed, nobody comes in any more
            lib.xe_device_close(self._pointer)

    def ioctl(self, request: int, argument: Any, call: str, **values: Any) -> None:
        """One ioctl, repeated on EINTR; raises the translated error."""
        with self as pointer:
            rc = lib.xe_ioctl(pointer, request, argument)
        if rc < 0:
            raise kernel_error(rc, call, **values)

    def try_ioctl(self, request: int, argument: Any) -> int:
        """One ioctl, repeated on EINTR: 0 or -errno."""
        with self as pointer:
            return int(lib.xe_ioctl(pointer, request, argument))

    def close(self) -> None:
        """Close the file, and with it every handle, VM and queue; idempotent.

        In a forked child it only forgets: the file belongs to the parent.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            now = self._users == 0 and os.getpid() == self._pid
        if now:
            lib.xe_device_close(self._pointer)


def _open_error(number: int, path: str) -> ZeIpcError:
    if number in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return DeviceNotVisible(
            "there is no such device",
            call="open",
            path=path,
            errno=number,
            hint="choose one of those that ze-ipc devices lists",
        )
    if number in (errno.EACCES, errno.EPERM):
        return AccessDenied(
            errno=number, call="open", path=path, hint="join the group that owns it (render)"
        )
    return kernel_error(-number, "open", path=path)


def u64(column: array[int]) -> Any:
    """A column as ``uint64_t *``; the array must outlive it and not grow meanwhile."""
    return ffi.from_buffer("uint64_t[]", column)


def nanoseconds(deadline: float) -> int:
    """A deadline of ``time.monotonic()`` as the C side counts it."""
    return int(min(deadline * 1e9, 2.0**62))
