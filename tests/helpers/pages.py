"""Ranges of many objects of a page each, for tests that count."""

from __future__ import annotations

import ze_ipc

PAGE = 4096


def pages_of(device: ze_ipc.Device, count: int) -> ze_ipc.Reservation:
    """A reservation of ``count`` objects of PAGE bytes, back to back."""
    reservation = device.reserve(count * PAGE)
    for index in range(count):
        with device.physical_memory(PAGE) as memory:
            reservation.map(memory, at=index * PAGE)
    return reservation
