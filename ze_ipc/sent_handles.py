"""Handles in messages: each serves the one process that receives the message, and no longer."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from ze_ipc.errors import UnsupportedFeature

if TYPE_CHECKING:
    from ze_ipc.device import Device
    from ze_ipc.importer import ImporterEvent
    from ze_ipc.range_handle import RangeHandle

LINGER = 60.0
"""Seconds after which a message that nobody has received is given up."""


class SentHandles:
    """The handles of one device that are on their way; they need neither the range's owner nor its
    mapping any more. What is given up is put at the device's next call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.handles: dict[RangeHandle, float] = {}
        """Those that are on their way, and until when (time.monotonic() seconds)."""

    def export(self, device: Device, ptr: int, size: int) -> bytes:
        """A handle for one message."""
        handle = device.get_ipc_handle(ptr, size)
        with self._lock:
            self.handles[handle] = time.monotonic() + LINGER
        with contextlib.suppress(UnsupportedFeature):  # a driver's own handle tells nothing
            handle.on_importer(partial(self._heard, handle))
        return bytes(handle)

    def give_up(self) -> None:
        """Put what nobody has received in time."""
        now = time.monotonic()
        with self._lock:
            late = [handle for handle, until in self.handles.items() if until <= now]
            for handle in late:
                del self.handles[handle]
        for handle in late:
            handle.close()

    def _heard(self, handle: RangeHandle, event: ImporterEvent) -> None:
        if event.kind != "opened":
            return
        with self._lock:
            mine = self.handles.pop(handle, None)
        if mine is not None:
            handle.close()
