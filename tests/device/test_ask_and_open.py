"""The whole of an importer's part in one call: where it takes longer, fails or is interrupted."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ze_ipc
from helpers import busy, ranges
from helpers.broker_fakes import fd_count
from helpers.waiting import eventually
from ze_ipc import share
from ze_ipc._mock import ffi as mock_ffi
from ze_ipc._mock import lib as mock
from ze_ipc._xe import ffi, lib
from ze_ipc.errors import InvalidHandle, KernelError, ZeIpcError
from ze_ipc.peer_process import Peer
from ze_ipc.xe import ask, held
from ze_ipc.xe.backend import XeBackend

PAGE = 4096
LARGE = 2 << 20
Held = Callable[[int, int, int], int]


@pytest.fixture
def importer() -> Iterator[ze_ipc.Device]:
    with ze_ipc.open_device("mock") as device:
        yield device


@pytest.fixture
def handle(xe_mock: ze_ipc.Device) -> Iterator[ze_ipc.RangeHandle]:
    """Three pages of as many objects, less three bytes."""
    with (
        xe_mock.reserve(3 * PAGE) as reservation,
        xe_mock.get_ipc_handle(filled(xe_mock, reservation, 3, PAGE) + 1, 3 * PAGE - 3) as made,
    ):
        yield made


def filled(device: ze_ipc.Device, reservation: ze_ipc.Reservation, count: int, size: int) -> int:
    for index in range(count):
        with device.physical_memory(size) as memory:
            reservation.map(memory, at=index * size)
        device.write(reservation.ptr + index * size, bytes([65 + index]) * 5)
    return reservation.ptr


def backend_of(device: ze_ipc.Device) -> XeBackend:
    assert isinstance(device._backend, XeBackend)
    return device._backend


def mappings() -> int:
    stats = mock_ffi.new("struct xe_mock_stats *")
    assert mock.xe_mock_stats(0, stats) == 0
    return int(stats.mappings)


def afterwards(monkeypatch: pytest.MonkeyPatch, say: Callable[[Any], int]) -> None:
    """Have what the one call has done judged by ``say``, which gets its ``struct xe_ask_open``: the
    mock's binds are never late, so what a kernel would say is put into its mouth.
    """
    call: Held = ask._held.call

    def judged(function: int, first: int, second: int) -> int:
        rc = call(function, first, second)
        if function != ask._ASK_AND_OPEN:
            return rc
        state = ffi.cast("struct xe_ask_open *", second)
        if rc == -errno.EINTR:  # a busy machine: the broker has not answered yet
            state.ask.patience = 0
            while rc == -errno.EINTR:
                rc = lib.xe_ask_open(ffi.cast("struct xe_device *", first), state)
        assert rc == 0
        assert state.opened
        return say(state)

    class Module:
        call = staticmethod(judged)

    monkeypatch.setattr(ask, "_held", Module)


def test_a_bind_that_outlasts_the_patience_is_waited_for(
    handle: ze_ipc.RangeHandle, importer: ze_ipc.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(state: Any) -> int:
        state.open.fence = lib.xe_fence_create(ffi.NULL)
        return -errno.EINTR

    afterwards(monkeypatch, late)
    with importer.open_ipc_handle(handle) as view:
        assert importer.read(view.ptr, 4) == b"AAAA"
        assert view.size == 3 * PAGE - 3


@pytest.mark.parametrize("how", ["errno", "interrupt"])
def test_what_fails_in_the_end_is_undone(
    handle: ze_ipc.RangeHandle, importer: ze_ipc.Device, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def fail(_state: Any) -> int:
        if how == "interrupt":
            raise KeyboardInterrupt
        return -errno.EIO

    importer.open_ipc_handle(handle).close()
    fds, mapped = fd_count(), mappings()
    with monkeypatch.context() as patch:
        afterwards(patch, fail)
        with pytest.raises(KeyboardInterrupt if how == "interrupt" else ZeIpcError):
            importer.open_ipc_handle(handle)
    assert backend_of(importer).live_objects == 0
    assert mappings() == mapped
    # Where it is the kernel's word, the exporter would not have been told: it watches us in vain.
    assert eventually(lambda: fd_count() <= fds + (how == "errno"))
    assert how == "errno" or eventually(lambda: handle.importers() == [])
    with importer.open_ipc_handle(handle) as view:
        assert importer.read(view.ptr + 2 * PAGE - 1, 4) == b"CCCC"


def test_a_digest_that_is_wrong_gives_all_of_it_back(
    handle: ze_ipc.RangeHandle, importer: ze_ipc.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the caller's to check, and by then the range is mapped and the exporter knows."""

    def wrong(_raw: bytes) -> None:
        raise InvalidHandle("its digest does not match")

    mapped = mappings()
    with monkeypatch.context() as patch:
        patch.setattr(share.manifests, "Glance", wrong)
        with pytest.raises(InvalidHandle):
            importer.open_ipc_handle(handle)
    assert backend_of(importer).live_objects == 0
    assert mappings() == mapped
    assert eventually(lambda: handle.importers() == [])
    importer.open_ipc_handle(handle).close()


@pytest.mark.parametrize("count", [1, 64, 65, 600])
def test_without_patience_the_rest_goes_without_the_gil(
    xe_mock: ze_ipc.Device, importer: ze_ipc.Device, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(held, "PATIENCE", -1)
    with xe_mock.reserve(count * PAGE) as reservation:
        for index in range(count):
            with xe_mock.physical_memory(PAGE) as memory:
                reservation.map(memory, at=index * PAGE)
        xe_mock.write(reservation.ptr + count * PAGE - 3, b"end")
        with (
            xe_mock.get_ipc_handle(reservation.ptr, count * PAGE) as made,
            importer.open_ipc_handle(made) as view,
            importer.open_ipc_handle(made) as again,
        ):
            assert again.transport == "cached"
            for one in (view, again):
                assert importer.read(one.ptr + count * PAGE - 3, 3) == b"end"


@pytest.mark.parametrize("lead", [0, PAGE, LARGE - PAGE])
@pytest.mark.parametrize("size", [PAGE, LARGE - PAGE, LARGE, 2 * LARGE])
def test_addresses_keep_their_phase_and_have_room(
    xe_mock: ze_ipc.Device, importer: ze_ipc.Device, lead: int, size: int
) -> None:
    with (
        xe_mock.reserve(3 * LARGE) as reservation,
        xe_mock.physical_memory(3 * LARGE) as memory,
        ze_ipc.open_device("mock") as other,
    ):
        reservation.map(memory, at=0)
        with (
            xe_mock.get_ipc_handle(reservation.ptr + lead, size) as made,
            importer.open_ipc_handle(made) as view,
            importer.open_ipc_handle(made, reserve=0) as second,
            other.open_ipc_handle(made, reserve=3 * LARGE) as roomy,
        ):
            assert view.room == size
            assert roomy.room == 3 * LARGE
            assert view.ptr + size <= second.ptr or second.ptr + size <= view.ptr
            if size >= LARGE:
                assert view.ptr % LARGE == (reservation.ptr + lead) % LARGE
            assert roomy.ptr % LARGE == (reservation.ptr + lead) % LARGE


def test_a_window_larger_than_the_ground_goes_step_by_step(
    handle: ze_ipc.RangeHandle, importer: ze_ipc.Device
) -> None:
    backend_of(importer)._heap._ground_size = 2 * PAGE
    with importer.open_ipc_handle(handle) as view:
        assert importer.read(view.ptr + PAGE - 1, 4) == b"BBBB"


def test_the_kernel_says_no(handle: ze_ipc.RangeHandle, importer: ze_ipc.Device) -> None:
    """As ever: the steps are gone once more, one by one, and say what it was."""
    for nth in range(1, 20):
        assert mock.xe_mock_fault(0, lib.DRM_IOCTL_XE_VM_BIND, nth, errno.EPERM, 0) == 0
    try:
        with pytest.raises(KernelError) as caught:
            importer.open_ipc_handle(handle)
    finally:
        mock.xe_mock_clear_faults(0)
    assert caught.value.errno == errno.EPERM
    assert backend_of(importer).live_objects == 0


@pytest.mark.parametrize("count", [1, 16])
def test_small_calls_keep_the_gil(xe_mock: ze_ipc.Device, count: int) -> None:
    """Who gives it up beside a thread that computes waits a whole switch interval for it."""
    with (
        xe_mock.reserve(count * PAGE) as reservation,
        xe_mock.get_ipc_handle(filled(xe_mock, reservation, count, PAGE), count * PAGE) as made,
        Peer() as peer,
    ):
        peer.call(ranges.open_device)
        times = peer.call(busy.seconds_beside_a_busy_thread, bytes(made))
        peer.call(ranges.close_all)
    assert max(times.values()) < busy.INTERVAL / 2, times
