"""Reading and writing mapped ranges by their objects, whatever they are made of."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ze_ipc import arguments
from ze_ipc.backend import READ_ONLY
from ze_ipc.errors import InvalidArgument
from ze_ipc.walk import extents_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from ze_ipc.backend import Backend, CpuMapping
    from ze_ipc.columns import Columns
    from ze_ipc.mapping_table import MappingTable


class CpuAccess:
    """Byte-granular access to ``[ptr, ptr + size)`` of a table; the objects are held while it
    lasts.
    """

    def __init__(self, backend: Backend, table: MappingTable, lock: threading.RLock) -> None:
        self._backend = backend
        self._table = table
        self._lock = lock

    def read(self, ptr: int, size: int) -> bytes:
        into = bytearray(arguments.integer("Device.read", "size", size))
        if into:
            with self._held("Device.read", ptr, size, write=False) as rows:
                self._backend.read_extents(rows.objects, rows.offsets, rows.sizes, memoryview(into))
        return bytes(into)

    def write(self, ptr: int, data: bytes | bytearray | memoryview) -> None:
        raw = memoryview(data).cast("B")
        if raw.nbytes:
            with self._held("Device.write", ptr, raw.nbytes, write=True) as rows:
                self._backend.write_extents(rows.objects, rows.offsets, rows.sizes, raw)

    def map(self, ptr: int, size: int) -> tuple[CpuMapping, bool]:
        """A CPU view of the pages of ``[ptr, ptr + size)`` as they are mapped now, and whether it
        is read-only.
        """
        page = self._backend.info.page_size
        start, end = ptr // page * page, -(-(ptr + size) // page) * page
        with self._held("memoryview", start, end - start, write=False) as rows:
            read_only = READ_ONLY in rows.access
            return self._backend.cpu_map(
                rows.objects, rows.offsets, rows.sizes, not read_only
            ), read_only

    def has_read_only(self, ptr: int, size: int) -> bool:
        """Whether something in ``[ptr, ptr + size)`` is mapped read-only."""
        with self._lock:
            return READ_ONLY in self._table.window(ptr, size).access

    def check(self, call: str, ptr: int, size: int, *, write: bool) -> Columns:
        """The rows of the window, clipped to its bytes; raises unless all of it is mapped (and
        writable).
        """
        arguments.integer(call, "ptr", ptr)
        arguments.integer(call, "size", size)
        with self._lock:
            rows = extents_of(self._table, ptr, size, call)
        if write and READ_ONLY in rows.access:
            index = rows.access.index(READ_ONLY)
            raise InvalidArgument(
                "the range is mapped read-only",
                call=call,
                hint='map it with access="rw"',
                address=rows.starts[index],
            )
        return rows

    @contextmanager
    def _held(self, call: str, ptr: int, size: int, *, write: bool) -> Iterator[Columns]:
        with self._lock:
            rows = self.check(call, ptr, size, write=write)
            self._backend.retain_objects(rows.objects)
        try:
            yield rows
        finally:
            self._backend.release_objects(rows.objects)
