"""Ranges between processes through a Level Zero driver: the contract's rows, each byte compared."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ze_ipc
from helpers import ranges
from ze_ipc import errors
from ze_ipc.peer_process import Peer

PAGE = 65536
"""Of small objects of device memory on every GPU that xe drives."""
LARGE = 2 << 20
"""From here on sizes are multiples of it."""

Make = Callable[..., tuple[ze_ipc.Reservation, bytes]]


def refusal_of(function: Callable[..., object], *arguments: object) -> ze_ipc.ZeIpcError | None:
    """What a driver that maps device memory at one address only says; None of any other."""
    try:
        opened = function(*arguments)
    except errors.UnsupportedFeature as error:
        return error if error.call == "zeVirtualMemMap" else pytest.fail(str(error))
    if isinstance(opened, ze_ipc.ImportedRange):
        opened.close()
    return None


def test_the_device_says_what_it_is(device: ze_ipc.Device) -> None:
    assert device.backend == "level_zero"
    assert device.page_size == PAGE
    assert len(device.uuid) == 16
    assert len(device.pci_address.split(":")) == 3
    assert device.memory_size > 0
    assert device.ipc_path in ("native", "emulated")
    for selector in (device.pci_address, device.uuid, device.render_node):
        with ze_ipc.open_device("level_zero", selector) as again:
            assert again.uuid == device.uuid
    with pytest.raises(errors.DeviceNotVisible):
        ze_ipc.open_device("level_zero", "ffff:ff:1f.7")


@pytest.mark.parametrize("placement", ["device", "host"])
@pytest.mark.parametrize("offset", [0, LARGE])
@pytest.mark.parametrize("inside", [0, 4097])
def test_both_directions(
    device: ze_ipc.Device, peer: Peer, make_range: Make, placement: str, offset: int, inside: int
) -> None:
    sizes = [LARGE, 2 * LARGE, LARGE]
    reservation, data = make_range(sizes, placement, offset)
    length = sum(sizes) - 2 * inside
    with device.get_ipc_handle(reservation.ptr + inside, length) as handle:
        assert len(bytes(handle)) == 64
        _, size = peer.call(ranges.open_view, bytes(handle))
        assert size == length
        assert peer.call(ranges.read_view) == data[inside : inside + length]
        assert peer.call(ranges.address_range, length // 2) == (True, length)
        seam = LARGE - inside
        peer.call(ranges.write_view, seam - 5, b"over a seam")
        assert device.read(reservation.ptr + LARGE - 5, 11) == b"over a seam"
        peer.call(ranges.gpu_copy, seam, 0, 3000)
        assert device.read(reservation.ptr + LARGE, 3000) == data[inside : inside + 3000]
        device.fill(reservation.ptr + LARGE, 0x5A, 1000)
        assert peer.call(ranges.read_view, seam, 1000) == b"\x5a" * 1000
        peer.call(ranges.close_view)


@pytest.mark.parametrize("size", [1, 65, 4096, PAGE + 1, 3 * PAGE - 1])
@pytest.mark.parametrize("inside", [0, 1, PAGE - 1, PAGE + 17])
def test_any_pointer_and_size(
    device: ze_ipc.Device, peer: Peer, make_range: Make, inside: int, size: int
) -> None:
    reservation, data = make_range([PAGE] * 5)
    with device.get_ipc_handle(reservation.ptr + inside, size) as handle:
        ptr, opened = peer.call(ranges.open_view, bytes(handle))
        assert opened == size
        assert ptr % 4096 == (reservation.ptr + inside) % 4096
        assert peer.call(ranges.read_view) == data[inside : inside + size]
        peer.call(ranges.close_view)


def test_a_thousand_objects_and_no_descriptors_at_rest(
    device: ze_ipc.Device, peer: Peer, make_range: Make
) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    reservation, data = make_range([PAGE] * 1000)
    with device.get_ipc_handle(reservation.ptr, 1000 * PAGE) as handle:
        peer.call(ranges.open_view, bytes(handle), timeout=60.0)
        for index in (0, 1, 252, 253, 505, 506, 998, 999):
            place = index * PAGE + 4096
            assert peer.call(ranges.read_view, place, 64) == data[place : place + 64]
        peer.call(ranges.close_view)
        # The driver may listen for its own transport; that does not grow with the objects.
        assert len(os.listdir("/proc/self/fd")) < before + 32  # noqa: PTH208


def test_the_memory_outlives_its_exporter(device: ze_ipc.Device) -> None:
    with Peer() as exporter:
        exporter.call(ranges.open_device, 0, "level_zero")
        handle = exporter.call(ranges.export_range, 4, PAGE, b"abcd")
        view = device.open_ipc_handle(handle)
        exporter.kill()
    with view:
        expected = b"".join(bytes([letter]) * PAGE for letter in b"abcd")
        assert device.read(view.ptr, view.size) == expected
        device.write(view.ptr + PAGE, b"still")
        assert device.read(view.ptr + PAGE, 5) == b"still"
        # Whoever exports next takes the dead one's socket away.
        with device.get_ipc_handle(view.ptr, PAGE):
            pass
        begin = time.monotonic()
        with pytest.raises(errors.ExporterGone):
            device.open_ipc_handle(handle)
        assert time.monotonic() - begin < 5


def test_a_handle_that_was_put_is_revoked(
    device: ze_ipc.Device, peer: Peer, make_range: Make
) -> None:
    reservation, _ = make_range([PAGE])
    with device.get_ipc_handle(reservation.ptr, PAGE) as handle:
        raw = bytes(handle)
        with device.get_ipc_handle(reservation.ptr, PAGE):
            handle.close()
            with pytest.raises(errors.HandleRevoked):
                peer.call(ranges.open_view, raw)


def test_what_cannot_be_exported_is_named(device: ze_ipc.Device, make_range: Make) -> None:
    reservation, _ = make_range([PAGE] * 3)
    reservation.unmap(PAGE, PAGE)
    with pytest.raises(errors.AddressNotFound) as caught:
        device.get_ipc_handle(reservation.ptr, 3 * PAGE)
    assert caught.value.address == reservation.ptr + PAGE
    with pytest.raises(errors.InvalidSize):
        device.get_ipc_handle(reservation.ptr, 0)
    with pytest.raises(errors.InvalidNullPointer):
        device.get_ipc_handle(0, PAGE)
    for kind in ("device", "host", "shared"):
        with device.allocate(100_000, kind) as usm:  # type: ignore[arg-type]
            device.write(usm.ptr, b"ordinary")
            assert device.read(usm.ptr, 8) == b"ordinary"
            with pytest.raises(errors.InvalidArgument):
                device.get_ipc_handle(usm.ptr, 10)


def test_an_importer_hands_the_range_on(
    device: ze_ipc.Device, peer: Peer, make_range: Make
) -> None:
    reservation, data = make_range([PAGE] * 6)
    with device.get_ipc_handle(reservation.ptr, 6 * PAGE) as handle, Peer() as third:
        peer.call(ranges.open_view, bytes(handle))
        onward = peer.call(ranges.reexport, PAGE + 1, 3 * PAGE)
        third.call(ranges.open_device, 0, "level_zero")
        third.call(ranges.open_view, onward)
        assert third.call(ranges.read_view) == data[PAGE + 1 : 4 * PAGE + 1]
        third.call(ranges.write_view, 0, b"third")
        assert device.read(reservation.ptr + PAGE + 1, 5) == b"third"
        third.call(ranges.close_all)


def test_an_object_that_came_twice_is_one(
    device: ze_ipc.Device, peer: Peer, make_range: Make
) -> None:
    """Drivers close a GEM handle with the first of two imports: the second must still be right."""
    reservation, data = make_range([PAGE] * 2, "host")
    with (
        device.get_ipc_handle(reservation.ptr, 2 * PAGE) as whole,
        device.get_ipc_handle(reservation.ptr + PAGE, PAGE) as part,
    ):
        peer.call(ranges.open_view, bytes(whole))
        refusal = refusal_of(peer.call, ranges.open_view, bytes(part), 20.0, "second")
        if refusal is None:
            assert peer.call(ranges.read_view, 0, PAGE, "second") == data[PAGE:]
            peer.call(ranges.close_view, "second")
        assert peer.call(ranges.read_view) == data
        peer.call(ranges.close_view)
        peer.call(ranges.open_view, bytes(part), 20.0, "second")
        assert peer.call(ranges.read_view, 0, PAGE, "second") == data[PAGE:]
        peer.call(ranges.close_view, "second")
    assert device.read(reservation.ptr, 2 * PAGE) == data


def test_cpu_views(device: ze_ipc.Device, peer: Peer, make_range: Make) -> None:
    reservation, data = make_range([PAGE] * 3)
    with device.get_ipc_handle(reservation.ptr + 100, 2 * PAGE) as handle:
        peer.call(ranges.open_view, bytes(handle))
        seen = peer.call(ranges.cpu_view, PAGE - 200, 300, b"by the CPU")
        assert seen == data[PAGE - 100 : PAGE + 200]
        assert device.read(reservation.ptr + PAGE - 100, 10) == b"by the CPU"
        peer.call(ranges.close_view)


def test_one_address_for_device_memory_is_said(device: ze_ipc.Device, make_range: Make) -> None:
    reservation, data = make_range([PAGE])
    with device.get_ipc_handle(reservation.ptr, PAGE) as handle:
        refusal = refusal_of(device.open_ipc_handle, bytes(handle))
        assert refusal is None or refusal.object_index == 0
    assert device.read(reservation.ptr, PAGE) == data, "the refusal harmed the exporter"


def test_host_memory_opens_where_it_was_made(device: ze_ipc.Device, make_range: Make) -> None:
    reservation, data = make_range([PAGE] * 2, "host")
    with (
        device.get_ipc_handle(reservation.ptr, 2 * PAGE) as handle,
        device.open_ipc_handle(handle) as view,
    ):
        assert view.ptr != reservation.ptr
        assert device.read(view.ptr, 2 * PAGE) == data
        device.write(view.ptr, b"alias")
        assert device.read(reservation.ptr, 5) == b"alias"


def test_two_devices_of_one_process_do_not_share_a_kernel_handle(
    device: ze_ipc.Device, peer: Peer, make_range: Make
) -> None:
    reservation, data = make_range([PAGE] * 2, "host")
    with device.get_ipc_handle(reservation.ptr, 2 * PAGE) as handle:
        refusal = ranges.open_again({"device": device}, bytes(handle))
        assert refusal == ("" if device.ipc_path == "native" else "UnsupportedFeature")
        peer.call(ranges.open_view, bytes(handle))
        assert peer.call(ranges.read_view) == data
        assert peer.call(ranges.open_again, bytes(handle)) == refusal
        assert peer.call(ranges.read_view) == data
        peer.call(ranges.close_view)
    assert device.read(reservation.ptr, 2 * PAGE) == data


def test_a_part_is_unmapped_and_the_rest_stays(device: ze_ipc.Device, peer: Peer) -> None:
    with device.reserve(4 * PAGE) as reservation, device.physical_memory(4 * PAGE) as memory:
        reservation.map(memory, at=0)
        data = ranges.pattern(4 * PAGE, 9)
        device.write(reservation.ptr, data)
        reservation.unmap(0, PAGE)
        assert device.read(reservation.ptr + PAGE, 3 * PAGE) == data[PAGE:]
        reservation.unmap(3 * PAGE, PAGE)
        assert device.read(reservation.ptr + PAGE, 2 * PAGE) == data[PAGE : 3 * PAGE]
        with device.get_ipc_handle(reservation.ptr + PAGE, 2 * PAGE) as handle:
            peer.call(ranges.open_view, bytes(handle))
            assert peer.call(ranges.read_view) == data[PAGE : 3 * PAGE]
            peer.call(ranges.close_view)


@pytest.mark.parametrize(("here", "there"), [("level_zero", "xe"), ("xe", "level_zero")])
def test_handles_between_backends(driver: None, here: str, there: str) -> None:
    """Both are dma-bufs of the same device underneath."""
    with ze_ipc.open_device(here, 0) as device, Peer() as other:  # type: ignore[arg-type]
        other.call(ranges.open_device, 0, there)
        with device.reserve(4 * PAGE) as reservation:
            for index in range(4):
                with device.physical_memory(PAGE) as memory:
                    reservation.map(memory, at=index * PAGE)
            data = ranges.pattern(4 * PAGE, 3)
            device.write(reservation.ptr, data)
            with device.get_ipc_handle(reservation.ptr, 4 * PAGE) as handle:
                other.call(ranges.open_view, bytes(handle))
                assert other.call(ranges.read_view) == data
                other.call(ranges.write_view, PAGE, b"from the other backend")
                assert device.read(reservation.ptr + PAGE, 22) == b"from the other backend"
                other.call(ranges.close_view)
            with device.get_ipc_handle(reservation.ptr + 4096 + 7, 2 * PAGE) as window:
                other.call(ranges.open_view, bytes(window))
                seen = device.read(reservation.ptr, 4 * PAGE)
                assert other.call(ranges.read_view) == seen[4103 : 4103 + 2 * PAGE]
                other.call(ranges.close_view)
            other.call(ranges.close_all)


def test_cycles_leave_everything_flat(device: ze_ipc.Device, peer: Peer, make_range: Make) -> None:
    reservation, data = make_range([PAGE] * 20)

    def descriptors(pid: int) -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))

    counts = []
    for _ in range(9):
        with device.get_ipc_handle(reservation.ptr, 20 * PAGE) as handle:
            peer.call(ranges.open_view, bytes(handle))
            assert peer.call(ranges.read_view, 19 * PAGE, 100) == data[19 * PAGE :][:100]
            peer.call(ranges.close_view)
        counts.append(descriptors(os.getpid()) + descriptors(peer.pid))
    # A thread of the broker may be at its last step.
    assert min(counts[-3:]) <= min(counts[:3]), counts
