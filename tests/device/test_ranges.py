"""What a range handle means, row by row of the specification.

``xe_mock`` is whatever device the run is about; tests/level_zero runs these tests on drivers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import ze_ipc
from helpers import ranges
from helpers.opener import Opener, View, maps_once, opener_for, whole
from ze_ipc import errors
from ze_ipc.backend import Placement

PAGE = 4096
"""Of the smallest windows; sizes of objects are multiples of the device's own page."""
MIB = 1 << 20


@pytest.fixture
def device(xe_mock: ze_ipc.Device) -> ze_ipc.Device:
    return xe_mock


@pytest.fixture
def opener(device: ze_ipc.Device) -> Iterator[Opener]:
    with opener_for(device) as made:
        yield made


@pytest.fixture
def page(device: ze_ipc.Device) -> int:
    return device.page_size


def aliased(device: ze_ipc.Device) -> Placement:
    """Where memory lies that the device maps at several addresses; any, or it says so of others."""
    if not maps_once(device):
        return "device"
    page = device.page_size
    with device.reserve(2 * page) as reservation, device.physical_memory(page) as memory:
        reservation.map(memory, at=0)
        with pytest.raises(ze_ipc.UnsupportedFeature) as caught:
            reservation.map(memory, at=page)
    assert caught.value.call == "zeVirtualMemMap"
    return "host"


def check_cpu(view: View, at: int, expected: bytes, data: bytes = b"") -> None:
    """The CPU sees these bytes, and then writes; not through a driver's own handle, which names no
    dma-buf.
    """
    if view.transport == "native":
        with pytest.raises(BufferError):
            view.cpu()
    else:
        assert view.cpu(at, len(expected), data) == expected


def fill(device: ze_ipc.Device, ptr: int, size: int, seed: int = 1) -> bytes:
    data = random.Random(seed).randbytes(size)
    device.write(ptr, data)
    return data


def map_objects(
    device: ze_ipc.Device, reservation: ze_ipc.Reservation, sizes: list[int], at: int = 0
) -> None:
    for size in sizes:
        with device.physical_memory(size) as memory:
            reservation.map(memory, at=at)
        at += size


def test_three_objects_are_one_range(device: ze_ipc.Device, opener: Opener) -> None:
    sizes = [2 * MIB, 4 * MIB, 2 * MIB]
    with device.reserve(sum(sizes)) as reservation:
        map_objects(device, reservation, sizes)
        data = fill(device, reservation.ptr, sum(sizes))
        with (
            device.get_ipc_handle(reservation.ptr, sum(sizes)) as handle,
            opener.open(bytes(handle)) as view,
        ):
            assert len(bytes(handle)) == 64
            assert view.size == sum(sizes)
            assert maps_once(device) or view.ptr != reservation.ptr
            assert view.read() == data
            for at in (int(1.9 * MIB), 2 * MIB, int(5.9 * MIB), 6 * MIB, int(7.9 * MIB)):
                check_cpu(view, at, data[at : at + 1])
            last = bytes([data[6 * MIB] ^ 0xFF])
            check_cpu(view, 6 * MIB, data[6 * MIB :][:1], last)
            if view.transport == "native":
                view.write(6 * MIB, last)
            assert device.read(reservation.ptr + 6 * MIB, 1) == last


@pytest.mark.parametrize("size", [1, 65, 123, 4096, 2_097_275, 3 * MIB - 1])
@pytest.mark.parametrize("offset", [0, 1, 4095, 4097, MIB + 17])
def test_any_pointer_and_size(
    device: ze_ipc.Device, opener: Opener, offset: int, size: int
) -> None:
    with device.reserve(whole(device, 5 * MIB)) as reservation:
        map_objects(device, reservation, [MIB] * 5)
        data = fill(device, reservation.ptr, 5 * MIB)
        with (
            device.get_ipc_handle(reservation.ptr + offset, size) as handle,
            opener.open(handle) as view,
        ):
            assert view.size == size
            assert view.ptr % PAGE == (reservation.ptr + offset) % PAGE
            assert view.read() == data[offset : offset + size]
            check_cpu(view, 0, data[offset : offset + size])
            assert view.address_range() == (view.ptr, size)
            assert view.address_range(size - 1) == (view.ptr, size)


def test_offsets_of_each_object_are_kept(device: ze_ipc.Device, opener: Opener, page: int) -> None:
    with ExitStack() as undo:
        reservation = undo.enter_context(device.reserve(6 * page))
        # One object for all where a device maps it so often, else one for each.
        objects = 6 if maps_once(device) else 1
        made = [undo.enter_context(device.physical_memory(16 * page)) for _ in range(objects)]
        for slot, part in enumerate([7, 3, 15, 0, 8, 9]):
            memory = made[slot % objects]
            reservation.map(memory, at=slot * page, offset=part * page, size=page)
            device.write(reservation.ptr + slot * page, bytes([part]) * page)
        with (
            device.get_ipc_handle(reservation.ptr, 6 * page) as handle,
            opener.open(handle) as view,
        ):
            assert view.objects == (1 if view.transport == "native" else objects)
            read = view.read()
            assert [read[i * page] for i in range(6)] == [7, 3, 15, 0, 8, 9]
            check_cpu(view, 0, read)


def test_the_same_object_twice_stays_an_alias(
    device: ze_ipc.Device, opener: Opener, page: int
) -> None:
    with (
        device.reserve(2 * page) as reservation,
        device.physical_memory(page, aliased(device)) as memory,
    ):
        reservation.map(memory, at=0)
        reservation.map(memory, at=page)
        device.write(reservation.ptr, b"here")
        assert device.read(reservation.ptr + page, 4) == b"here"
        with device.get_ipc_handle(reservation.ptr, 2 * page) as handle:
            if maps_once(device):
                # What it imports it maps once, wherever the memory lies.
                with pytest.raises(ze_ipc.UnsupportedFeature) as caught:
                    opener.open(handle)
                assert caught.value.call == "zeVirtualMemMap"
                return
            with opener.open(handle) as view:
                view.write(0, b"once")
                assert view.read(page, 4) == b"once"
                assert device.read(reservation.ptr + page, 4) == b"once"


def test_many_reservations_are_one_range(device: ze_ipc.Device, opener: Opener, page: int) -> None:
    step = whole(device, 32 * page)
    with device.reserve(4 * step) as scout:
        base = scout.ptr
    if maps_once(device):
        # Intel's driver takes more addresses for each than it was asked for: none are neighbours.
        with device.reserve(step, address=base), pytest.raises(ze_ipc.InvalidArgument) as caught:
            device.reserve(step, address=base + step)
        assert caught.value.call == "zeVirtualMemReserve"
        return
    reservations = [device.reserve(step, address=base + i * step) for i in range(4)]
    for reservation in reservations:
        map_objects(device, reservation, [step // 2] * 2)
    data = fill(device, base, 4 * step)
    with (
        device.get_ipc_handle(base + 100, 100 * page) as handle,
        opener.open(handle) as view,
    ):
        assert view.read() == data[100 : 100 + 100 * page]
    for reservation in reservations:
        reservation.close()


def test_a_hole_is_named_by_its_first_address(device: ze_ipc.Device) -> None:
    with device.reserve(6 * MIB) as reservation:
        map_objects(device, reservation, [2 * MIB])
        map_objects(device, reservation, [2 * MIB], at=4 * MIB)
        with pytest.raises(ze_ipc.AddressNotFound) as caught:
            device.get_ipc_handle(reservation.ptr, 6 * MIB)
        assert caught.value.address == reservation.ptr + 2 * MIB
        assert caught.value.end == reservation.ptr + 4 * MIB
        assert caught.value.result == ze_ipc.Result.ADDRESS_NOT_FOUND
        with pytest.raises(ze_ipc.AddressNotFound) as caught:
            device.get_ipc_handle(reservation.ptr + 3 * MIB, MIB)
        assert caught.value.address == reservation.ptr + 3 * MIB
        device.get_ipc_handle(reservation.ptr, 2 * MIB).close()


def test_hundred_reserved_fifty_mapped(device: ze_ipc.Device) -> None:
    with device.reserve(100 * MIB) as reservation:
        map_objects(device, reservation, [10 * MIB] * 5)
        with pytest.raises(ze_ipc.AddressNotFound) as caught:
            device.get_ipc_handle(reservation.ptr, 100 * MIB)
        assert caught.value.address == reservation.ptr + 50 * MIB
        with device.get_ipc_handle(reservation.ptr, 50 * MIB) as handle:
            assert handle.objects == 5


def test_usm_in_the_window_is_refused_even_beside_a_hole(device: ze_ipc.Device, page: int) -> None:
    for kind in ("device", "host", "shared"):
        with device.allocate(3 * page, kind) as usm:  # type: ignore[arg-type]
            for ptr, size in ((usm.ptr, usm.size), (usm.ptr + 5, 1), (usm.ptr - page, 3 * page)):
                with pytest.raises(ze_ipc.InvalidArgument):
                    device.get_ipc_handle(ptr, size)


@pytest.mark.parametrize(
    ("ptr", "size", "error"),
    [
        (PAGE, 0, errors.InvalidSize),
        (0, 0, errors.InvalidSize),
        (0, PAGE, errors.InvalidNullPointer),
        (-1, PAGE, errors.InvalidArgument),
        (PAGE, -1, errors.InvalidSize),
        (1 << 64, PAGE, errors.InvalidArgument),
        ((1 << 64) - PAGE, PAGE, errors.AddressNotFound),
        ((1 << 64) - PAGE, 2 * PAGE, errors.AddressNotFound),
        (PAGE, (1 << 64) - 1, errors.AddressNotFound),
    ],
)
def test_wrong_windows(
    device: ze_ipc.Device, ptr: int, size: int, error: type[ze_ipc.ZeIpcError]
) -> None:
    with pytest.raises(error):
        device.get_ipc_handle(ptr, size)


def test_read_only_mappings_stay_read_only(
    device: ze_ipc.Device, opener: Opener, page: int
) -> None:
    with device.reserve(2 * page) as reservation, device.physical_memory(2 * page) as memory:
        with device.reserve(2 * page) as writable:
            writable.map(memory, at=0)
            device.write(writable.ptr, b"fixed" * 10)
        reservation.map(memory, at=0, access="ro")
        with pytest.raises(ze_ipc.InvalidArgument):
            device.write(reservation.ptr, b"x")
        with (
            device.get_ipc_handle(reservation.ptr, 2 * page) as handle,
            opener.open(handle) as view,
        ):
            assert view.read(0, 5) == b"fixed"
            if view.transport == "native":
                assert not view.read_only  # a driver does not say of its handles
                return
            assert view.read_only
            assert view.cpu(0, 5) == b"fixed"
            assert view.run(ranges.cpu_view_is_read_only)
            with pytest.raises(ze_ipc.InvalidArgument):
                view.write(0, b"x")


def test_a_handle_is_a_snapshot(device: ze_ipc.Device, opener: Opener, page: int) -> None:
    with device.reserve(4 * page) as reservation:
        map_objects(device, reservation, [page, page])
        data = fill(device, reservation.ptr, 2 * page)
        with device.get_ipc_handle(reservation.ptr, 2 * page) as handle:
            reservation.unmap(0, 2 * page)
            map_objects(device, reservation, [page] * 4)  # other objects, and growth
            device.write(reservation.ptr, bytes(4 * page))
            with opener.open(handle) as view:
                assert view.size == 2 * page
                assert view.read() == data
                reservation.unmap(0, 4 * page)
                assert view.read() == data


def test_put_before_open_and_after(device: ze_ipc.Device, opener: Opener, page: int) -> None:
    # A driver's own handle does not say why it opens no more.
    revoked = ze_ipc.InvalidArgument if device.ipc_path == "native" else ze_ipc.HandleRevoked
    with device.reserve(page) as reservation:
        map_objects(device, reservation, [page])
        data = fill(device, reservation.ptr, page)
        handle = device.get_ipc_handle(reservation.ptr, page)
        raw = bytes(handle)
        with opener.open(raw) as view:
            handle.close()
            handle.close()
            assert view.read() == data
            with pytest.raises(revoked):
                opener.open(raw)
            ok, reason = opener.run(ranges.can_open, raw)
            assert not ok
            assert reason
        with (
            device.get_ipc_handle(reservation.ptr, page) as again,
            opener.open(again) as view,
        ):
            assert view.read() == data


def test_two_opens_of_one_handle_are_two_ranges(
    device: ze_ipc.Device, opener: Opener, page: int
) -> None:
    with ExitStack() as undo:
        reservation = undo.enter_context(device.reserve(4 * page))
        map_objects(device, reservation, [page] * 4)
        handle = undo.enter_context(device.get_ipc_handle(reservation.ptr, 4 * page))
        first, second_opener = opener.open(handle), opener
        if maps_once(device):
            with pytest.raises(ze_ipc.UnsupportedFeature) as caught:
                opener.open(handle)
            assert caught.value.object_index == 0
            second_opener = undo.enter_context(opener_for(device))
        second = second_opener.open(handle)
        if second_opener is opener:
            assert first.ptr != second.ptr
            assert second.transport == ("native" if device.ipc_path == "native" else "cached")
        first.write(9, b"both")
        first.close()
        first.close()
        assert second.read(9, 4) == b"both"
        second.close()
        with pytest.raises(ze_ipc.AddressNotFound):
            second_opener.run(ranges.read_at, second.ptr, 1)


def test_memory_outlives_the_exporters_objects(
    device: ze_ipc.Device, opener: Opener, page: int
) -> None:
    reservation = device.reserve(3 * page)
    map_objects(device, reservation, [page] * 3)
    data = fill(device, reservation.ptr, 3 * page)
    handle = device.get_ipc_handle(reservation.ptr, 3 * page)
    reservation.close()
    with opener.open(handle) as view:
        handle.close()
        assert view.read() == data


def test_a_cpu_view_outlives_close(device: ze_ipc.Device, opener: Opener, page: int) -> None:
    with device.reserve(2 * page) as reservation:
        map_objects(device, reservation, [page] * 2)
        data = fill(device, reservation.ptr, 2 * page)
        with (
            device.get_ipc_handle(reservation.ptr + 7, page) as handle,
            opener.open(handle) as view,
        ):
            if view.transport == "native":
                check_cpu(view, 0, b"")
                return
            seen, error = view.run(ranges.cpu_view_after_close)
            assert seen == data[7 : 7 + page]
            assert error in ("BufferError", "Closed")


def test_reexport_of_an_imported_range(device: ze_ipc.Device, opener: Opener, page: int) -> None:
    with device.reserve(8 * page) as reservation:
        map_objects(device, reservation, [2 * page] * 4)
        data = fill(device, reservation.ptr, 8 * page)
        with (
            device.get_ipc_handle(reservation.ptr + page, 6 * page) as first,
            opener.open(first) as view,
            opener_for(device) as third,
        ):
            second = view.run(ranges.reexport_view, 10, 4 * page)
            with third.open(second) as again:
                assert again.read() == data[page + 10 : page + 10 + 4 * page]
            opener.run(ranges.put_handles)


def test_address_range_of_everything(device: ze_ipc.Device, page: int) -> None:
    with device.reserve(4 * page) as reservation, device.allocate(100) as usm:
        map_objects(device, reservation, [2 * page])
        assert device.address_range(reservation.ptr + 5) == (reservation.ptr, 2 * page)
        assert device.address_range(usm.ptr + 5)[0] == usm.ptr
        with pytest.raises(ze_ipc.AddressNotFound):
            device.address_range(reservation.ptr + 3 * page)


def test_handles_are_data(device: ze_ipc.Device, opener: Opener, page: int) -> None:
    import pickle

    with device.reserve(page) as reservation:
        map_objects(device, reservation, [page])
        with device.get_ipc_handle(reservation.ptr, page) as handle:
            native = device.ipc_path == "native"
            copy = ze_ipc.RangeHandle.from_bytes(bytes(handle), native)
            assert copy == handle
            assert hash(copy) == hash(handle)
            assert pickle.loads(pickle.dumps(handle)) == handle
            copy.close()  # owns nothing
            assert opener.run(ranges.can_open, bytes(copy))[0]
            with device.get_ipc_handle(reservation.ptr, page) as other:
                assert other != handle


def test_handle_types(device: ze_ipc.Device, opener: Opener, page: int) -> None:
    with device.reserve(page) as reservation:
        map_objects(device, reservation, [page])
        data = fill(device, reservation.ptr, page)
        with (
            device.get_ipc_handle(reservation.ptr, page, handle_type="default") as handle,
            opener.open(handle) as view,
        ):
            assert view.read() == data
        with pytest.raises(ze_ipc.ZeIpcError) as caught:
            device.get_ipc_handle(reservation.ptr, page, handle_type="fabric")
        native = device.ipc_path == "native"  # refused by the driver then
        refused = ze_ipc.Result.UNSUPPORTED_ENUMERATION
        assert caught.value.result == (refused if native else ze_ipc.Result.UNSUPPORTED_FEATURE)
        with pytest.raises(ze_ipc.InvalidArgument):
            device.get_ipc_handle(reservation.ptr, page, handle_type="other")  # type: ignore[arg-type]
