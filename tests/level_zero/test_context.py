"""Ranges in a context that another library owns."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import ze_ipc
from helpers import ranges
from ze_ipc import errors
from ze_ipc._ze import ffi
from ze_ipc.peer_process import Peer

PAGE = 65536


def test_backend_xe_has_no_contexts() -> None:
    with (
        ze_ipc.open_device("mock") as mock,
        mock.reserve(PAGE) as reservation,
        mock.physical_memory(PAGE) as memory,
    ):
        reservation.map(memory, at=0)
        with (
            mock.get_ipc_handle(reservation.ptr, PAGE) as handle,
            pytest.raises(errors.UnsupportedFeature),
        ):
            mock.open_ipc_handle(handle, context=4096)


def test_a_foreign_context_stays_its_owners(
    device: ze_ipc.Device, peer: Peer, make_range: Callable[..., tuple[ze_ipc.Reservation, bytes]]
) -> None:
    """Another device's context plays the other library: it works on after we have left it."""
    handle = peer.call(ranges.export_range, 2, PAGE, b"xy")
    with ze_ipc.open_device("level_zero") as owner:
        context = owner._backend._context.handle  # type: ignore[attr-defined]
        number = int(ffi.cast("uintptr_t", context))
        with ze_ipc.open_device("level_zero") as visitor:
            view = visitor.open_ipc_handle(handle, context=number)
            assert view.size == 2 * PAGE
            view.close()
            left_open = visitor.open_ipc_handle(handle, context=number)
        assert left_open.closed
        with owner.reserve(PAGE) as reservation, owner.physical_memory(PAGE) as memory:
            reservation.map(memory, at=0)
            owner.write(reservation.ptr, b"alive")
            assert owner.read(reservation.ptr, 5) == b"alive"
    reservation, data = make_range([PAGE])
    assert device.read(reservation.ptr, PAGE) == data
