"""A range as the dma-bufs behind it: what RDMA and other drivers register."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ze_ipc import arguments
from ze_ipc.errors import InvalidArgument
from ze_ipc.walk import extents_of

if TYPE_CHECKING:
    from ze_ipc.device import Device


@dataclass(frozen=True, slots=True)
class DmaBuf:
    """One piece of a range: these bytes of it are those bytes of an object."""

    fd: int
    """Of the object's dma-buf, the same for every piece of that object; the block's to close. It
    gives whoever has it the whole object.
    """
    offset: int
    """Bytes from the beginning of the dma-buf."""
    length: int
    """Bytes."""
    range_offset: int
    """Bytes from the beginning of the range."""
    read_only: bool
    """Whether the range maps it read-only; the fd does not know."""


@contextmanager
def dmabufs(
    device: Device, call: str, ptr: int, limit: int, offset: int, size: int | None
) -> Iterator[list[DmaBuf]]:
    """The pieces of ``size`` bytes from ``ptr + offset`` on; their fds are open for the block."""
    start = arguments.integer(call, "offset", offset)
    length = limit - start if size is None else arguments.integer(call, "size", size)
    if start > limit or start + length > limit:
        raise InvalidArgument(
            "offset and size reach beyond the range",
            call=call,
            hint=f"keep offset + size within {limit} bytes",
            offset=start,
            size=length,
        )
    device._enter(call)
    backend = device._backend
    with device._lock:
        rows = extents_of(device._table, ptr + start, length, call)
        distinct = array("Q", dict.fromkeys(rows.objects))
        fds = backend.export_fds(distinct)
    try:
        fd_of = dict(zip(distinct, fds, strict=True))
        yield [
            DmaBuf(fd_of[obj], at, end - begin, begin - ptr, bool(access))
            for begin, end, obj, at, access in zip(
                rows.starts, rows.ends, rows.objects, rows.offsets, rows.access, strict=True
            )
        ]
    finally:
        for fd in fds:
            os.close(fd)
