"""Ranges through multiprocessing's pickle: exported where they are pickled, opened where they are
unpickled. The public face is ``interop.multiprocessing``.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from ze_ipc.errors import Closed
from ze_ipc.imported_range import ImportedRange
from ze_ipc.reservation import Reservation

if TYPE_CHECKING:
    from ze_ipc.device import Device
    from ze_ipc.open_device import BackendName, Selector

TIMEOUT = 30.0
"""Seconds that a receiver may take to open what it received."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the memory of a message lies, for the receiver to find the same."""

    backend: BackendName
    uuid: bytes
    """16 bytes, of the device."""
    selector: Selector
    """What open_device() takes there: the number of a mock in the process, else the UUID."""

    @classmethod
    def of(cls, device: Device) -> Origin:
        kind, _, number = device.render_node.partition(":")
        if kind == "mock":
            return cls("mock", device.uuid, int(number))
        name: BackendName = "level_zero" if device.backend == "level_zero" else "xe"
        return cls(name, device.uuid, device.uuid)


def send(source: ImportedRange | Reservation) -> tuple[bytes, Origin]:
    """Export all of a range for one receiver; what receive() takes there.

    AddressNotFound where a Reservation has a hole: send device.get_ipc_handle() of a part instead.
    """
    if source.closed:
        raise Closed(
            f"{type(source).__name__} is closed",
            call="pickle",
            hint="keep it open until the other side has it: a Queue pickles some time after put()",
        )
    source._check("pickle")
    device = source.device
    return device._sent.export(device, source.ptr, source.size), Origin.of(device)


def receive(data: bytes, origin: Origin, timeout: float = TIMEOUT) -> ImportedRange:
    """Open what send() gave on this process's device for it."""
    return _receivers.open(data, origin, timeout)


@contextmanager
def receive_on(device: Device) -> Iterator[Device]:
    """Within the block, ranges that this process receives are opened on ``device``, where they lie
    on its backend and UUID; of several, the last that was named.

    They are the device's, as any other: closing it closes them.
    """
    _receivers.name(device)
    try:
        yield device
    finally:
        _receivers.forget(device)


class _Shared:
    """A device that was opened for received ranges, and how many of them are open."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.users = 0


class _Receivers:
    """The devices of this process that ranges are received on, by where the ranges lie."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._named: list[weakref.ref[Device]] = []
        self._shared: dict[Origin, _Shared] = {}

    def name(self, device: Device) -> None:
        with self._lock:
            self._named.append(weakref.ref(device))

    def forget(self, device: Device) -> None:
        with self._lock:
            for index in reversed(range(len(self._named))):
                if self._named[index]() in (device, None):
                    del self._named[index]
                    return

    def open(self, data: bytes, origin: Origin, timeout: float) -> ImportedRange:
        device = self._find(origin)
        if device is not None:
            return device.open_ipc_handle(data, timeout)
        shared = self._take(origin)
        try:
            view = shared.device.open_ipc_handle(data, timeout)
        except BaseException:
            self._give_back(origin, shared)
            raise
        view._when_closed(lambda: self._give_back(origin, shared))
        return view

    def close(self) -> None:
        """The process ends: close what it opened for itself."""
        with self._lock:
            shared, self._shared = self._shared, {}
        for entry in shared.values():
            entry.device.close()

    def abandon(self) -> None:
        """In a forked child, where the parent's devices do not work."""
        self.__init__()  # type: ignore[misc]

    def _find(self, origin: Origin) -> Device | None:
        with self._lock:
            for reference in reversed(self._named):
                device = reference()
                if device is not None and not device.closed and Origin.of(device) == origin:
                    return device
        return None

    def _take(self, origin: Origin) -> _Shared:
        from ze_ipc.open_device import open_device  # which imports us by the device

        with self._lock:
            shared = self._shared.get(origin)
            if shared is None or shared.device.closed:
                shared = self._shared[origin] = _Shared(
                    open_device(origin.backend, origin.selector)
                )
            shared.users += 1
            return shared

    def _give_back(self, origin: Origin, shared: _Shared) -> None:
        with self._lock:
            shared.users -= 1
            if shared.users:
                return
            if self._shared.get(origin) is shared:
                del self._shared[origin]
        shared.device.close()


_receivers = _Receivers()
atexit.register(_receivers.close)
os.register_at_fork(after_in_child=_receivers.abandon)


def reduce(source: ImportedRange | Reservation) -> tuple[Any, ...]:
    """How a pickle is to carry a range to one receiver."""
    return receive, send(source)


def register() -> None:
    """Teach multiprocessing's pickle our ranges; whoever can open a device has done it."""
    ForkingPickler.register(ImportedRange, reduce)
    ForkingPickler.register(Reservation, reduce)
