"""The objects of one export as this process holds them, shared by every open of the same handle."""

from __future__ import annotations

import itertools
import secrets
import threading
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ze_ipc.backend import Backend
    from ze_ipc.transport import Connection


class ImportedObjects:
    """References to the objects of one export, counted by the opens that use them."""

    def __init__(
        self, key: tuple[bytes, int], digest: bytes, objects: array[int], token: int
    ) -> None:
        self.key = key
        """(broker id, generation)."""
        self.digest = digest
        """Of the manifest; a second open must see the same."""
        self.objects = objects
        self.users = 1
        self.token = token
        """Ours for these objects; the exporter hears it when it is told of an open or a release."""
        self.told: Connection | None = None
        """The (closed) connection by which the exporter was told that we hold them."""


class ImportCache:
    """Who holds which export's objects; a second open of a handle imports nothing again."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._held: dict[tuple[bytes, int], ImportedObjects] = {}
        self._tokens = secrets.randbits(63)
        self._numbers = itertools.count()

    def acquire(self, key: tuple[bytes, int]) -> ImportedObjects | None:
        """One more user of what is held for ``key``; None if nothing is."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                held.users += 1
            return held

    def new_token(self) -> int:
        """A number that no other objects of any process have."""
        return self._tokens + next(self._numbers)

    def add(
        self, key: tuple[bytes, int], digest: bytes, objects: array[int], token: int
    ) -> ImportedObjects:
        """Take over freshly imported references. Of two racing imports the first is kept for later
        opens.
        """
        fresh = ImportedObjects(key, digest, objects, token)
        with self._lock:
            self._held.setdefault(key, fresh)
        return fresh

    def drop(self, held: ImportedObjects) -> None:
        """One user less; the last one gives the references back, and tells the exporter."""
        with self._lock:
            held.users -= 1
            if held.users:
                return
            if self._held.get(held.key) is held:
                del self._held[held.key]
        self._backend.release_objects(held.objects)
        if held.told is not None:
            held.told.tell_released(held.token)

    def close(self) -> None:
        """Tell the exporters of all that is still held, whose objects go with the device."""
        with self._lock:
            held, self._held = list(self._held.values()), {}
        for entry in held:
            if entry.told is not None:
                entry.told.tell_released(entry.token)
