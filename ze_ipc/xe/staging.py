"""Reads and writes of memory that the CPU cannot reach: through a buffer it can, by the GPU."""

from __future__ import annotations

import contextlib
import time
from array import array

from ze_ipc.backend import Backend

_CHUNK = 8 << 20
"""Bytes of the buffer."""
_TIMEOUT = 30.0
"""Seconds that one chunk may take."""


def stage(
    backend: Backend,
    objects: array[int],
    offsets: array[int],
    sizes: array[int],
    data: memoryview,
    write: bool,
) -> None:
    """Copy between extents, byte-granular, and a buffer of their total size."""
    page = backend.info.page_size
    length = min(_CHUNK, -(-max(sizes, default=0) // page) * page + page)
    at = 0
    with contextlib.ExitStack() as undo:
        buffer = backend.create_object(length, "host")
        column = array("Q", [buffer])
        undo.callback(backend.release_objects, column)
        staged = _mapped(backend, undo, buffer, 0, length)
        for obj, offset, size in zip(objects, offsets, sizes, strict=True):
            for start in range(offset, offset + size, length):
                count = min(length, offset + size - start)
                first = start // page * page
                with contextlib.ExitStack() as done:
                    whole = -(-(start + count - first) // page) * page
                    gpu = _mapped(backend, done, obj, first, whole) + start - first
                    part = array("Q", [0]), array("Q", [count]), data[at : at + count]
                    deadline = time.monotonic() + _TIMEOUT
                    if write:
                        backend.write_extents(column, *part)
                        backend.copy(gpu, staged, count, deadline)
                    else:
                        backend.copy(staged, gpu, count, deadline)
                        backend.read_extents(column, *part)
                at += count


def _mapped(backend: Backend, undo: contextlib.ExitStack, obj: int, offset: int, size: int) -> int:
    address = backend.reserve(size, None, backend.info.page_size, 0)
    undo.callback(backend.unreserve, address, size)
    deadline = time.monotonic() + _TIMEOUT
    columns = array("Q", [obj]), array("Q", [offset]), array("Q", [size]), array("B", [0])
    backend.map_extents(address, *columns, deadline)
    undo.callback(backend.unmap, address, size, deadline + _TIMEOUT)
    return address
