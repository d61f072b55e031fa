"""The mappings behind a window: the device's own, and those of other code that are observed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ze_ipc.columns import Columns
from ze_ipc.errors import AddressNotFound
from ze_ipc.overlay import Overlay
from ze_ipc.walk import walk

if TYPE_CHECKING:
    from ze_ipc.backend import SeenWindow
    from ze_ipc.device import Device

_VA_LAST = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class KnownRows:
    """What ``walk`` found."""

    rows: Columns
    context: int
    """The ze_context_handle_t of other code that mapped it; 0 where all is the device's own."""


@contextmanager
def known_rows(device: Device, ptr: int, size: int) -> Iterator[KnownRows]:
    """The mappings of ``[ptr, ptr + size)``; their objects are held in the block. The caller holds
    the device's lock.
    """
    try:
        own = walk(device._table, ptr, size, device.page_size)
    except AddressNotFound as hole:
        seen = device._backend.seen(ptr, min(ptr + size, _VA_LAST))
        if seen is None:
            if device.backend == "level_zero":
                hole.hint += "; for what other code maps, call ze_ipc.observe() before it does"
            raise
    else:
        yield KnownRows(own, 0)
        return
    try:
        yield KnownRows(_walk_both(device, seen, ptr, size), seen.context)
    finally:
        device._backend.release_objects(seen.objects)


def _walk_both(device: Device, seen: SeenWindow, ptr: int, size: int) -> Columns:
    rows = Columns(seen.starts, seen.ends, seen.objects, seen.offsets, seen.access)
    try:
        return walk(Overlay(device._table, rows, seen.allocations), ptr, size, device.page_size)
    except AddressNotFound as hole:
        at = hole.address or ptr
        reserved = device._table.reservation_at(at) is not None or any(
            start <= at < end for start, end in seen.reservations
        )
        if reserved:  # seen to be empty
            raise
        raise AddressNotFound(
            "nothing is known of this address: either nothing is mapped, or it was before "
            "ze_ipc.observe() or past the loader",
            call=hole.call,
            address=at,
            end=hole.end,
            ptr=ptr,
            size=size,
            hint="call ze_ipc.observe() before the memory is mapped",
        ) from None
