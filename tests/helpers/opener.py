"""Where a range test opens its handles: here, or in another process where the driver needs one.

Intel's Level Zero driver maps device memory at one address at a time, so its ranges are opened in
a peer process. The same test then says the same of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import ze_ipc
from helpers import ranges
from helpers.ranges import whole as whole
from ze_ipc.peer_process import Peer, State

T = TypeVar("T")


def maps_once(device: ze_ipc.Device) -> bool:
    """Whether the driver below maps device memory at one address at a time."""
    return device.backend == "level_zero" and device.ipc_path == "emulated"


class View:
    """An open range; ``run`` and what is built on it happen where it is open."""

    def __init__(self, call: Callable[..., Any], name: str) -> None:
        self._call = call
        self._name = name
        self._open = True
        facts = self.run(ranges.facts_of_view)
        self.ptr: int = facts["ptr"]
        self.size: int = facts["size"]
        self.objects: int = facts["objects"]
        self.read_only: bool = facts["read_only"]
        self.transport: str = facts["transport"]

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """``function(state, *arguments, name=...)`` where the view is; it must be importable."""
        found: T = self._call(ranges.on_view, self._name, function, arguments)
        return found

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        return self.run(ranges.read_view, offset, size)

    def write(self, offset: int, data: bytes) -> None:
        self.run(ranges.write_view, offset, data)

    def cpu(self, at: int = 0, size: int | None = None, data: bytes = b"") -> bytes:
        """Bytes as the CPU sees them; then ``data`` is written there the same way."""
        return self.run(ranges.cpu_view, at, self.size - at if size is None else size, data)

    def address_range(self, offset: int = 0) -> tuple[int, int]:
        return self.run(ranges.address_range_of, offset)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._call(ranges.close_view, self._name)

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Opener:
    """Opens handles on one device; several views may be open at once."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._count = 0

    def open(self, handle: bytes | ze_ipc.RangeHandle, timeout: float = 20.0) -> View:
        name = f"view {self._count}"
        self._count += 1
        self._call(ranges.open_view, bytes(handle), timeout, name)
        return View(self._call, name)

    def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """``function(state, *arguments)`` where handles are opened."""
        found: T = self._call(function, *arguments)
        return found


@contextmanager
def opener_for(device: ze_ipc.Device) -> Iterator[Opener]:
    """Opens on the device itself, or on the same one in a peer process."""
    if not maps_once(device):
        state: State = {"device": device}
        yield Opener(lambda function, *arguments: function(state, *arguments))
        return
    with _peer() as peer:
        peer.call(ranges.open_device, device.pci_address, device.backend)
        yield Opener(peer.call)
        peer.call(ranges.close_device)


_idle: list[Peer] = []


@contextmanager
def pool(count: int) -> Iterator[None]:
    """In the block openers use these processes rather than new ones: a driver starts slowly."""
    with ExitStack() as undo:
        _idle.extend(undo.enter_context(Peer()) for _ in range(count))
        undo.callback(_idle.clear)
        yield


@contextmanager
def _peer() -> Iterator[Peer]:
    if not _idle:
        with Peer() as peer:
            yield peer
        return
    peer = _idle.pop()
    yield peer
    _idle.append(peer)  # not after a failure, which may have left something open
