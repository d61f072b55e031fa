"""What an exporter keeps for one handle: its manifest and references to its objects, but no fd."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ze_ipc.manifest import Exposure, exposure, parse

if TYPE_CHECKING:
    from array import array

    from ze_ipc.backend import Backend
    from ze_ipc.importer import ImporterEvent
    from ze_ipc.policy import Policy


class Export:
    """Holds one reference to every object of a window until the broker is done with it.

    Takes the references over. The broker calls it from its threads, and ``retired`` once at the
    end: live imports have references of their own.
    """

    def __init__(
        self,
        backend: Backend,
        manifest_bytes: bytes,
        objects: array[int],
        ptr: int,
        size: int,
        policy: Policy,
        call_back: Callable[[Callable[[], None]], None],
    ) -> None:
        """``call_back`` is the broker's."""
        self.manifest_bytes = manifest_bytes
        """As it goes over the wire."""
        self.object_count = len(objects)
        self.ptr = ptr
        """GPU VA of the window's first byte."""
        self.size = size
        """Bytes of the window."""
        self.policy = policy
        """Who may open it."""
        self._backend = backend
        self._objects: array[int] | None = objects
        self._lock = threading.Lock()
        self._call_back = call_back
        self._exposure: Exposure | None = None
        self.is_extended = False
        """Whether another export goes on where this one ends."""
        self._listeners: tuple[Callable[[ImporterEvent], None], ...] = ()

    def send_reply(self, socket_fd: int, head: bytes, body: bytes | memoryview) -> bool:
        """Send the broker's answer with one fd an object, if it can be done at once."""
        objects = self._objects
        return objects is not None and self._backend.send_reply(socket_fd, head, body, objects)

    def send_bytes(self, socket_fd: int, data: memoryview, message: int, deadline: float) -> int:
        """Send the rest of the manifest."""
        return self._backend.send_bytes(socket_fd, data, message, deadline)

    def send_objects(self, socket_fd: int, deadline: float, first: int = 0) -> None:
        """Send one fd an object to an importer, from the ``first`` on."""
        objects = self._objects
        if objects is not None:
            rest = objects[first:] if first else objects
            self._backend.send_objects(socket_fd, rest, deadline)

    @property
    def objects(self) -> array[int] | None:
        """What it holds, in the order of the manifest; None once it is retired."""
        return self._objects

    @property
    def exposure(self) -> Exposure:
        """What an importer can reach."""
        if self._exposure is None:
            self._exposure = exposure(parse(self.manifest_bytes))
        return self._exposure

    def listen(self, callback: Callable[[ImporterEvent], None]) -> None:
        """Have the callback told of what importers do from now on."""
        with self._lock:
            self._listeners = (*self._listeners, callback)

    def on_importer(self, event: ImporterEvent) -> None:
        """Tell those who listen; nothing here depends on it."""
        for callback in self._listeners:
            self._call_back(partial(callback, event))

    def retired(self) -> None:
        """Nobody can be served any more: the references go back."""
        with self._lock:
            objects, self._objects = self._objects, None
        if objects is not None:
            self._backend.release_objects(objects)
