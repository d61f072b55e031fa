"""A few mappings as the columns of a manifest, and their objects held, by one C call."""

from __future__ import annotations

from array import array
from typing import Any

from ze_ipc._xe import ffi, lib
from ze_ipc.xe.device import Device

MOST = int(lib.DESCRIBE_MOST)
"""Mappings."""

_spare: list[tuple[Any, Any, Any, Any]] = []
"""Structures that nobody uses now."""


def describe(
    device: Device,
    starts: array[int],
    ends: array[int],
    objects: array[int],
    offsets: array[int],
    access: array[int],
) -> tuple[bytes, array[int], int] | None:
    """(columns, distinct objects with one more reference each, extents), or None: there are too
    many, or something is wrong, which is found out step by step.
    """
    count = len(starts)
    if count > MOST:
        return None
    try:
        spare = _spare.pop()
    except IndexError:
        columns, distinct = (
            ffi.new("uint8_t[]", MOST * lib.DESCRIBE_ROW),
            ffi.new("uint64_t[]", MOST),
        )
        spare = (
            ffi.new("struct xe_describe *"),
            ffi.buffer(columns),
            ffi.buffer(distinct),
            (columns, distinct),
        )
        spare[0].columns, spare[0].distinct = columns, distinct
    what, columns, distinct, _kept = spare
    view = ffi.from_buffer
    keep = (view("uint64_t[]", starts), view("uint64_t[]", ends), view("uint64_t[]", objects))
    what.starts, what.ends, what.objects = keep
    what.offsets = shifts = view("uint64_t[]", offsets)
    what.access = bits = view("uint8_t[]", access)
    what.count = count
    with device as pointer:
        rc = lib.xe_describe(pointer, what)
    del keep, shifts, bits
    found = None
    if rc == 0:
        held = array("Q")
        held.frombytes(distinct[: 8 * what.num_distinct])
        found = columns[: what.size], held, what.extents
    _spare.append(spare)
    return found
