"""A range in another process: spawned, killed, handed on, under limits.

``xe_mock`` is whatever device the run is about; tests/level_zero runs these tests on drivers.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ze_ipc
from helpers import ranges
from helpers.opener import opener_for, whole
from helpers.waiting import eventually
from ze_ipc.peer_process import Peer


@pytest.fixture
def device(xe_mock: ze_ipc.Device) -> ze_ipc.Device:
    return xe_mock


@pytest.fixture
def page(device: ze_ipc.Device) -> int:
    return device.page_size


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as other:
        other.call(ranges.open_device)
        yield other
        other.call(ranges.close_all)


def gone(device: ze_ipc.Device) -> type[ze_ipc.ZeIpcError]:
    """The error of a handle whose exporter is no more; a driver has one for all failures."""
    return ze_ipc.InvalidArgument if device.ipc_path == "native" else ze_ipc.ExporterGone


def make_range(device: ze_ipc.Device, sizes: list[int]) -> tuple[ze_ipc.Reservation, bytes]:
    reservation = device.reserve(whole(device, sum(sizes)))
    at = 0
    for size in sizes:
        with device.physical_memory(size) as memory:
            reservation.map(memory, at=at)
        at += size
    data = random.Random(len(sizes)).randbytes(sum(sizes))
    device.write(reservation.ptr, data)
    return reservation, data


def test_both_directions(device: ze_ipc.Device, peer: Peer, page: int) -> None:
    reservation, data = make_range(device, [page, 3 * page, 2 * page, page])
    with reservation, device.get_ipc_handle(reservation.ptr + 11, 6 * page) as handle:
        _, size = peer.call(ranges.open_view, bytes(handle))
        assert size == 6 * page
        assert peer.call(ranges.read_view) == data[11 : 11 + 6 * page]
        assert peer.call(ranges.address_range, 5 * page) == (True, 6 * page)
        peer.call(ranges.write_view, 4 * page - 3, b"answered")
        assert device.read(reservation.ptr + 11 + 4 * page - 3, 8) == b"answered"
        peer.call(ranges.close_view)


@pytest.mark.parametrize("objects", [1, 2, 252, 253, 254, 506, 1114])
def test_batches_of_objects_arrive_in_order(
    device: ze_ipc.Device, peer: Peer, objects: int, page: int
) -> None:
    reservation, data = make_range(device, [page] * objects)
    with reservation, device.get_ipc_handle(reservation.ptr, objects * page) as handle:
        peer.call(ranges.open_view, bytes(handle))
        assert peer.call(ranges.read_view) == data
        peer.call(ranges.close_view)


def test_import_outlives_a_killed_exporter(device: ze_ipc.Device, page: int) -> None:
    with Peer() as exporter:
        exporter.call(ranges.open_device)
        raw = exporter.call(ranges.export_range, 300, page, b"abcdefg")
        with device.open_ipc_handle(raw) as view:
            exporter.kill()
            expected = b"".join(b"abcdefg"[i % 7 : i % 7 + 1] * page for i in range(300))
            assert device.read(view.ptr, view.size) == expected
            device.write(view.ptr + 5, b"still mine")
            assert device.read(view.ptr + 5, 10) == b"still mine"
            begin = time.monotonic()
            with pytest.raises(gone(device)):
                device.open_ipc_handle(raw)
            assert time.monotonic() - begin < 5
            # and what was received can be shared on
            with device.get_ipc_handle(view.ptr, view.size) as again, Peer() as third:
                third.call(ranges.open_device)
                third.call(ranges.open_view, bytes(again))
                assert third.call(ranges.read_view, 0, page)[:4] == b"aaaa"
                third.call(ranges.close_all)


def test_exporter_killed_before_the_open(device: ze_ipc.Device, page: int) -> None:
    with Peer() as exporter:
        exporter.call(ranges.open_device)
        raw = exporter.call(ranges.export_range, 3, page, b"x")
        assert device.can_open(raw)
        exporter.kill()
    with pytest.raises(gone(device)):
        device.open_ipc_handle(raw)
    check = device.can_open(raw)
    assert not check
    assert isinstance(check.error, gone(device))
    # the next exporter clears the dead one's socket away
    reservation, _ = make_range(device, [page])
    with reservation, device.get_ipc_handle(reservation.ptr, page):
        sockets = list(Path(os.environ["ZE_IPC_DIR"]).glob("*.sock"))
        assert len(sockets) == (0 if device.ipc_path == "native" else 1)


def test_put_elsewhere_is_revoked_here(device: ze_ipc.Device, peer: Peer, page: int) -> None:
    raw = peer.call(ranges.export_range, 3, page, b"x")
    peer.call(ranges.put_handle)
    # A driver's own handle does not say why it opens no more.
    revoked = ze_ipc.InvalidArgument if device.ipc_path == "native" else ze_ipc.HandleRevoked
    with pytest.raises(revoked):
        device.open_ipc_handle(raw)


def test_reexport_to_a_third_process(device: ze_ipc.Device, peer: Peer, page: int) -> None:
    reservation, data = make_range(device, [2 * page] * 10)
    with reservation, device.get_ipc_handle(reservation.ptr, 20 * page) as handle, Peer() as third:
        peer.call(ranges.open_view, bytes(handle))
        onward = peer.call(ranges.reexport, 3 * page + 1, 7 * page)
        third.call(ranges.open_device)
        third.call(ranges.open_view, onward)
        assert third.call(ranges.read_view) == data[3 * page + 1 : 10 * page + 1]
        third.call(ranges.write_view, 0, b"third")
        assert device.read(reservation.ptr + 3 * page + 1, 5) == b"third"
        third.call(ranges.close_all)


def test_many_importers_at_once(device: ze_ipc.Device, page: int) -> None:
    reservation, data = make_range(device, [page] * 600)
    with reservation, device.get_ipc_handle(reservation.ptr, 600 * page) as handle:
        peers = [Peer() for _ in range(4)]
        for other in peers:
            other.call(ranges.open_device)
        for other in peers:
            other.start(ranges.open_view, bytes(handle))
        for other in peers:
            other.result()
        seen = 0 if device.ipc_path == "native" else 4  # by our broker only
        # An importer's last word may still be on its way.
        assert eventually(lambda: len(handle.importers()) == seen)
        for other in peers:
            assert other.call(ranges.read_view, 599 * page) == data[599 * page :]
            other.call(ranges.close_all)
            other.close()


def test_another_device_maps_it_as_a_peer(device: ze_ipc.Device, page: int) -> None:
    reservation, data = make_range(device, [page] * 5)
    with (
        reservation,
        ranges.second_device() as other,
        opener_for(other) as opener,
        device.get_ipc_handle(reservation.ptr + 1, 4 * page) as handle,
    ):
        assert other.uuid != device.uuid
        with opener.open(handle) as view:
            assert view.read() == data[1 : 1 + 4 * page]
            view.write(0, b"peer")
        assert device.read(reservation.ptr + 1, 4) == b"peer"


@pytest.mark.parametrize("transport", ["broker", "pidfd"])
def test_both_transports(
    device: ze_ipc.Device, transport: str, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    with Peer() as exporter:
        exporter.call(ranges.open_device)
        raw = exporter.call(ranges.export_range, 260, page, b"ab")
        monkeypatch.setenv("ZE_IPC_TRANSPORT", transport)
        with device.open_ipc_handle(raw) as view:
            native = device.ipc_path == "native"
            assert view.transport == ("native" if native else transport)
            assert device.read(view.ptr + page, 3) == b"bbb"
        exporter.call(ranges.close_all)


def test_a_hundred_thousand_objects_under_256_fds(device: ze_ipc.Device) -> None:
    # Level Zero drivers keep a descriptor for every object that they import, or make.
    limited = device.backend == "level_zero"
    count, size = (1000 if limited else 100_000), 65536
    with Peer() as exporter, Peer() as importer:
        for other in (exporter, importer):
            other.call(ranges.limit_fds, 256)
            other.call(ranges.open_device)
        if device.ipc_path == "native":
            with pytest.raises(ze_ipc.OutOfHostMemory):
                exporter.call(ranges.export_stamped, count, size)
            return
        raw = exporter.call(ranges.export_stamped, count, size, timeout=90)
        if limited:
            with pytest.raises(ze_ipc.FdLimit) as caught:
                importer.call(ranges.open_view, raw)
            assert caught.value.object_index is not None
        else:
            importer.call(ranges.open_view, raw, 60.0, timeout=90)
            assert importer.call(ranges.wrong_stamps, count, size, timeout=90) == []
        for other in (importer, exporter):
            other.call(ranges.close_all, timeout=60)


def test_gpu_copies_through_an_imported_range(device: ze_ipc.Device, page: int) -> None:
    count = 600 if device.backend == "level_zero" else 5000  # there: a descriptor each
    with Peer() as exporter:
        exporter.call(ranges.open_device)
        raw = exporter.call(ranges.export_range, count, page, bytes(range(251)))
        with device.allocate(count * page) as copied:
            device.fill(copied.ptr, 0, 1)  # the engine has its memory now: nothing follows the view
            with device.open_ipc_handle(raw) as view:
                check_gpu_copies(device, view, copied.ptr, count)
        exporter.call(ranges.close_all)


def check_gpu_copies(
    device: ze_ipc.Device, view: ze_ipc.ImportedRange, copied: int, count: int
) -> None:
    device.copy(copied, view.ptr, view.size)
    page = device.page_size
    expected = b"".join(bytes([i % 251]) * page for i in range(count))
    assert device.read(copied, view.size) == expected
    device.fill(view.ptr + 7, 0xAB, view.size - 14)
    device.copy(copied, view.ptr, view.size)
    filled = expected[:7] + b"\xab" * (view.size - 14) + expected[-7:]
    assert device.read(copied, view.size) == filled
    # Past the end the engine faults, as on hardware, if nobody stops it before.
    end = view.ptr + view.size
    with pytest.raises(ze_ipc.AddressNotFound):
        device.copy(copied, view.ptr + 1, view.size)
    if device.backend == "xe":  # a Level Zero driver ends the process
        with pytest.raises(ze_ipc.DeviceLost) as caught:
            device._backend.copy(copied, end - page, 2 * page, time.monotonic() + 20)
        assert caught.value.address == end
    device.copy(copied, view.ptr, 5)
    assert device.read(copied, 5) == filled[:5]
