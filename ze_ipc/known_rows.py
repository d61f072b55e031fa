"""The mappings behind a window: the device's own, and those of other code that are observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ze_ipc.columns import Columns
from ze_ipc.errors import AddressNotFound
from ze_ipc.overlay import Overlay
from ze_ipc.walk import walk

if TYPE_CHECKING:
    from array import array

    from ze_ipc.backend import SeenWindow
    from ze_ipc.device import Device

_VA_LAST = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class KnownRows:
    """What ``walk`` found."""

    rows: Columns
    context: int
    """The ze_context_handle_t of other code that mapped it; 0 where all is the device's own."""
    held: array[int] | None = None
    """Objects to release when the rows are no longer needed."""


def known_rows(device: Device, ptr: int, size: int) -> KnownRows:
    """The mappings of ``[ptr, ptr + size)``; the caller holds the device's lock."""
    backend = device._backend
    try:
        return KnownRows(walk(device._table, ptr, size, backend.info.page_size), 0)
    except AddressNotFound as hole:
        seen = backend.seen(ptr, min(ptr + size, _VA_LAST))
        if seen is None:
            if device.backend == "level_zero":
                hole.hint += "; for what other code maps, call ze_ipc.observe() before it does"
            raise
    try:
        return KnownRows(_walk_both(device, seen, ptr, size), seen.context, seen.objects)
    except BaseException:
        backend.release_objects(seen.objects)
        raise


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
