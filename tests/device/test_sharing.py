"""A range in another process: spawned, killed, handed on, under limits."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ze_ipc
from helpers import ranges
from ze_ipc.peer_process import Peer

PAGE = 4096


@pytest.fixture
def device(xe_mock: ze_ipc.Device) -> ze_ipc.Device:
    return xe_mock


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as other:
        other.call(ranges.open_device)
        yield other
        other.call(ranges.close_all)


def make_range(device: ze_ipc.Device, sizes: list[int]) -> tuple[ze_ipc.Reservation, bytes]:
    reservation = device.reserve(sum(sizes))
    at = 0
    for size in sizes:
        with device.physical_memory(size) as memory:
            reservation.map(memory, at=at)
        at += size
    data = random.Random(len(sizes)).randbytes(sum(sizes))
    device.write(reservation.ptr, data)
    return reservation, data


def test_both_directions(device: ze_ipc.Device, peer: Peer) -> None:
    reservation, data = make_range(device, [PAGE, 3 * PAGE, 2 * PAGE, PAGE])
    with reservation, device.get_ipc_handle(reservation.ptr + 11, 6 * PAGE) as handle:
        _, size = peer.call(ranges.open_view, bytes(handle))
        assert size == 6 * PAGE
        assert peer.call(ranges.read_view) == data[11 : 11 + 6 * PAGE]
        assert peer.call(ranges.address_range, 5 * PAGE) == (True, 6 * PAGE)
        peer.call(ranges.write_view, 4 * PAGE - 3, b"answered")
        assert device.read(reservation.ptr + 11 + 4 * PAGE - 3, 8) == b"answered"
        peer.call(ranges.close_view)


@pytest.mark.parametrize("objects", [1, 2, 252, 253, 254, 506, 1114])
def test_batches_of_objects_arrive_in_order(
    device: ze_ipc.Device, peer: Peer, objects: int
) -> None:
    reservation, data = make_range(device, [PAGE] * objects)
    with reservation, device.get_ipc_handle(reservation.ptr, objects * PAGE) as handle:
        peer.call(ranges.open_view, bytes(handle))
        assert peer.call(ranges.read_view) == data
        peer.call(ranges.close_view)


def test_import_outlives_a_killed_exporter(device: ze_ipc.Device) -> None:
    with Peer() as exporter:
        exporter.call(ranges.open_device)
        raw = exporter.call(ranges.export_range, 300, PAGE, b"abcdefg")
        with device.open_ipc_handle(raw) as view:
            exporter.kill()
            expected = b"".join(b"abcdefg"[i % 7 : i % 7 + 1] * PAGE for i in range(300))
            assert device.read(view.ptr, view.size) == expected
            device.write(view.ptr + 5, b"still mine")
            assert device.read(view.ptr + 5, 10) == b"still mine"
            begin = time.monotonic()
            with pytest.raises(ze_ipc.ExporterGone):
                device.open_ipc_handle(raw)
            assert time.monotonic() - begin < 5
            # and what was received can be shared on
            with device.get_ipc_handle(view.ptr, view.size) as again, Peer() as third:
                third.call(ranges.open_device)
                third.call(ranges.open_view, bytes(again))
                assert third.call(ranges.read_view, 0, PAGE)[:4] == b"aaaa"
                third.call(ranges.close_all)


def test_exporter_killed_before_the_open(device: ze_ipc.Device) -> None:
    with Peer() as exporter:
        exporter.call(ranges.open_device)
        raw = exporter.call(ranges.export_range, 3, PAGE, b"x")
        assert device.can_open(raw)
        exporter.kill()
    with pytest.raises(ze_ipc.ExporterGone):
        device.open_ipc_handle(raw)
    check = device.can_open(raw)
    assert not check
    assert isinstance(check.error, ze_ipc.ExporterGone)
    # the next exporter clears the dead one's socket away
    reservation, _ = make_range(device, [PAGE])
    with reservation, device.get_ipc_handle(reservation.ptr, PAGE):
        assert len(list(Path(os.environ["ZE_IPC_DIR"]).glob("*.sock"))) == 1


def test_put_elsewhere_is_revoked_here(device: ze_ipc.Device, peer: Peer) -> None:
    raw = peer.call(ranges.export_range, 3, PAGE, b"x")
    peer.call(ranges.put_handle)
    with pytest.raises(ze_ipc.HandleRevoked):
        device.open_ipc_handle(raw)


def test_reexport_to_a_third_process(device: ze_ipc.Device, peer: Peer) -> None:
    reservation, data = make_range(device, [2 * PAGE] * 10)
    with reservation, device.get_ipc_handle(reservation.ptr, 20 * PAGE) as handle, Peer() as third:
        peer.call(ranges.open_view, bytes(handle))
        onward = peer.call(ranges.reexport, 3 * PAGE + 1, 7 * PAGE)
        third.call(ranges.open_device)
        third.call(ranges.open_view, onward)
        assert third.call(ranges.read_view) == data[3 * PAGE + 1 : 10 * PAGE + 1]
        third.call(ranges.write_view, 0, b"third")
        assert device.read(reservation.ptr + 3 * PAGE + 1, 5) == b"third"
        third.call(ranges.close_all)


def test_many_importers_at_once(device: ze_ipc.Device) -> None:
    reservation, data = make_range(device, [PAGE] * 600)
    with reservation, device.get_ipc_handle(reservation.ptr, 600 * PAGE) as handle:
        peers = [Peer() for _ in range(4)]
        for other in peers:
            other.call(ranges.open_device)
        for other in peers:
            other.start(ranges.open_view, bytes(handle))
        for other in peers:
            other.result()
        deadline = time.monotonic() + 10  # an importer's last word may still be on its way
        while len(handle.importers()) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(handle.importers()) == 4
        for other in peers:
            assert other.call(ranges.read_view, 599 * PAGE) == data[599 * PAGE :]
            other.call(ranges.close_all)
            other.close()


def test_another_device_maps_it_as_a_peer(device: ze_ipc.Device, peer: Peer) -> None:
    reservation, data = make_range(device, [PAGE] * 5)
    with (
        reservation,
        ranges.second_device() as other,
        device.get_ipc_handle(reservation.ptr + 1, 4 * PAGE) as handle,
        other.open_ipc_handle(handle) as view,
    ):
        assert other.uuid != device.uuid
        assert other.read(view.ptr, view.size) == data[1 : 1 + 4 * PAGE]
        other.write(view.ptr, b"peer")
        assert device.read(reservation.ptr + 1, 4) == b"peer"


@pytest.mark.parametrize("transport", ["broker", "pidfd"])
def test_both_transports(
    device: ze_ipc.Device, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer() as exporter:
        exporter.call(ranges.open_device)
        raw = exporter.call(ranges.export_range, 260, PAGE, b"ab")
        monkeypatch.setenv("ZE_IPC_TRANSPORT", transport)
        with device.open_ipc_handle(raw) as view:
            assert view.transport == transport
            assert device.read(view.ptr + PAGE, 3) == b"bbb"
        exporter.call(ranges.close_all)


def test_a_hundred_thousand_objects_under_256_fds() -> None:
    count = 100_000
    with Peer() as exporter, Peer() as importer:
        for other in (exporter, importer):
            other.call(ranges.limit_fds, 256)
            other.call(ranges.open_device)
        raw = exporter.call(ranges.export_stamped, count, 65536, timeout=90)
        importer.call(ranges.open_view, raw, 60.0, timeout=90)
        assert importer.call(ranges.wrong_stamps, count, 65536, timeout=90) == []
        for other in (importer, exporter):
            other.call(ranges.close_all, timeout=60)


def test_gpu_copies_through_an_imported_range_of_5000_objects(device: ze_ipc.Device) -> None:
    count = 5000
    with Peer() as exporter:
        exporter.call(ranges.open_device)
        raw = exporter.call(ranges.export_range, count, PAGE, bytes(range(251)))
        with device.allocate(count * PAGE) as copied:
            device.fill(copied.ptr, 0, 1)  # the engine has its memory now: nothing follows the view
            with device.open_ipc_handle(raw) as view:
                check_gpu_copies(device, view, copied.ptr, count)
        exporter.call(ranges.close_all)


def check_gpu_copies(
    device: ze_ipc.Device, view: ze_ipc.ImportedRange, copied: int, count: int
) -> None:
    device.copy(copied, view.ptr, view.size)
    expected = b"".join(bytes([i % 251]) * PAGE for i in range(count))
    assert device.read(copied, view.size) == expected
    device.fill(view.ptr + 7, 0xAB, view.size - 14)
    device.copy(copied, view.ptr, view.size)
    filled = expected[:7] + b"\xab" * (view.size - 14) + expected[-7:]
    assert device.read(copied, view.size) == filled
    # Past the end the engine faults, as on hardware, if nobody stops it before.
    end = view.ptr + view.size
    with pytest.raises(ze_ipc.AddressNotFound):
        device.copy(copied, view.ptr + 1, view.size)
    with pytest.raises(ze_ipc.DeviceLost) as caught:
        device._backend.copy(copied, end - PAGE, 2 * PAGE, time.monotonic() + 20)
    assert caught.value.address == end
    device.copy(copied, view.ptr, 5)
    assert device.read(copied, 5) == filled[:5]
