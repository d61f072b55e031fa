"""What a range handle means, row by row of the specification, in one process."""

from __future__ import annotations

import random

import pytest

import ze_ipc
from ze_ipc import errors

PAGE = 4096
MIB = 1 << 20


@pytest.fixture
def device(xe_mock: ze_ipc.Device) -> ze_ipc.Device:
    return xe_mock


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


def test_three_objects_are_one_range(device: ze_ipc.Device) -> None:
    sizes = [2 * MIB, 4 * MIB, 2 * MIB]
    with device.reserve(sum(sizes)) as reservation:
        map_objects(device, reservation, sizes)
        data = fill(device, reservation.ptr, sum(sizes))
        with (
            device.get_ipc_handle(reservation.ptr, sum(sizes)) as handle,
            device.open_ipc_handle(bytes(handle)) as view,
        ):
            assert len(bytes(handle)) == 64
            assert view.size == sum(sizes)
            assert view.ptr != reservation.ptr
            assert device.read(view.ptr, view.size) == data
            with memoryview(view) as window:
                for at in (int(1.9 * MIB), 2 * MIB, int(5.9 * MIB), 6 * MIB, int(7.9 * MIB)):
                    assert window[at] == data[at]
                window[6 * MIB] = window[6 * MIB] ^ 0xFF
            assert device.read(reservation.ptr + 6 * MIB, 1)[0] == data[6 * MIB] ^ 0xFF


@pytest.mark.parametrize("size", [1, 65, 123, 4096, 2_097_275, 3 * MIB - 1])
@pytest.mark.parametrize("offset", [0, 1, 4095, 4097, MIB + 17])
def test_any_pointer_and_size(device: ze_ipc.Device, offset: int, size: int) -> None:
    with device.reserve(4 * MIB + MIB) as reservation:
        map_objects(device, reservation, [MIB] * 5)
        data = fill(device, reservation.ptr, 5 * MIB)
        with (
            device.get_ipc_handle(reservation.ptr + offset, size) as handle,
            device.open_ipc_handle(handle) as view,
        ):
            assert view.size == size
            assert view.ptr % PAGE == (reservation.ptr + offset) % PAGE
            assert device.read(view.ptr, size) == data[offset : offset + size]
            assert bytes(memoryview(view)) == data[offset : offset + size]
            assert device.address_range(view.ptr) == (view.ptr, size)
            assert device.address_range(view.ptr + size - 1) == (view.ptr, size)


def test_offsets_of_each_object_are_kept(device: ze_ipc.Device) -> None:
    with device.reserve(6 * PAGE) as reservation, device.physical_memory(16 * PAGE) as memory:
        for slot, page in enumerate([7, 3, 15, 0, 8, 9]):
            reservation.map(memory, at=slot * PAGE, offset=page * PAGE, size=PAGE)
            device.write(reservation.ptr + slot * PAGE, bytes([page]) * PAGE)
        with (
            device.get_ipc_handle(reservation.ptr, 6 * PAGE) as handle,
            device.open_ipc_handle(handle) as view,
        ):
            assert view.objects == 1
            read = device.read(view.ptr, view.size)
            assert [read[i * PAGE] for i in range(6)] == [7, 3, 15, 0, 8, 9]
            assert bytes(memoryview(view)) == read


def test_the_same_object_twice_stays_an_alias(device: ze_ipc.Device) -> None:
    with device.reserve(2 * PAGE) as reservation, device.physical_memory(PAGE) as memory:
        reservation.map(memory, at=0)
        reservation.map(memory, at=PAGE)
        with (
            device.get_ipc_handle(reservation.ptr, 2 * PAGE) as handle,
            device.open_ipc_handle(handle) as view,
        ):
            device.write(view.ptr, b"once")
            assert device.read(view.ptr + PAGE, 4) == b"once"
            assert device.read(reservation.ptr + PAGE, 4) == b"once"


def test_many_reservations_are_one_range(device: ze_ipc.Device) -> None:
    with device.reserve(64 * PAGE) as scout:
        base = scout.ptr
    reservations = [device.reserve(16 * PAGE, address=base + i * 16 * PAGE) for i in range(4)]
    for reservation in reservations:
        map_objects(device, reservation, [8 * PAGE, 8 * PAGE])
    data = fill(device, base, 64 * PAGE)
    with (
        device.get_ipc_handle(base + 100, 50 * PAGE) as handle,
        device.open_ipc_handle(handle) as view,
    ):
        assert device.read(view.ptr, view.size) == data[100 : 100 + 50 * PAGE]
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


def test_usm_in_the_window_is_refused_even_beside_a_hole(device: ze_ipc.Device) -> None:
    for kind in ("device", "host", "shared"):
        with device.allocate(3 * PAGE, kind) as usm:  # type: ignore[arg-type]
            for ptr, size in ((usm.ptr, usm.size), (usm.ptr + 5, 1), (usm.ptr - PAGE, 3 * PAGE)):
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


def test_read_only_mappings_stay_read_only(device: ze_ipc.Device) -> None:
    with device.reserve(2 * PAGE) as reservation, device.physical_memory(2 * PAGE) as memory:
        with device.reserve(2 * PAGE) as writable:
            writable.map(memory, at=0)
            device.write(writable.ptr, b"fixed" * 10)
        reservation.map(memory, at=0, access="ro")
        with (
            device.get_ipc_handle(reservation.ptr, 2 * PAGE) as handle,
            device.open_ipc_handle(handle) as view,
        ):
            assert view.read_only
            assert device.read(view.ptr, 5) == b"fixed"
            with memoryview(view) as window:
                assert window.readonly
                assert bytes(window[:5]) == b"fixed"
            for ptr in (view.ptr, reservation.ptr):
                with pytest.raises(ze_ipc.InvalidArgument):
                    device.write(ptr, b"x")


def test_a_handle_is_a_snapshot(device: ze_ipc.Device) -> None:
    with device.reserve(4 * PAGE) as reservation:
        map_objects(device, reservation, [PAGE, PAGE])
        data = fill(device, reservation.ptr, 2 * PAGE)
        with device.get_ipc_handle(reservation.ptr, 2 * PAGE) as handle:
            reservation.unmap(0, 2 * PAGE)
            map_objects(device, reservation, [PAGE] * 4)  # other objects, and growth
            device.write(reservation.ptr, bytes(4 * PAGE))
            with device.open_ipc_handle(handle) as view:
                assert view.size == 2 * PAGE
                assert device.read(view.ptr, view.size) == data
                reservation.unmap(0, 4 * PAGE)
                assert device.read(view.ptr, view.size) == data


def test_put_before_open_and_after(device: ze_ipc.Device) -> None:
    with device.reserve(PAGE) as reservation:
        map_objects(device, reservation, [PAGE])
        data = fill(device, reservation.ptr, PAGE)
        handle = device.get_ipc_handle(reservation.ptr, PAGE)
        raw = bytes(handle)
        with device.open_ipc_handle(raw) as view:
            handle.close()
            handle.close()
            assert device.read(view.ptr, PAGE) == data
            with pytest.raises(ze_ipc.HandleRevoked):
                device.open_ipc_handle(raw)
            assert not device.can_open(raw)
            assert device.can_open(raw).reason
        with (
            device.get_ipc_handle(reservation.ptr, PAGE) as again,
            device.open_ipc_handle(again) as view,
        ):
            assert device.read(view.ptr, PAGE) == data


def test_two_opens_of_one_handle_are_two_ranges(device: ze_ipc.Device) -> None:
    with device.reserve(4 * PAGE) as reservation:
        map_objects(device, reservation, [PAGE] * 4)
        with device.get_ipc_handle(reservation.ptr, 4 * PAGE) as handle:
            first = device.open_ipc_handle(handle)
            second = device.open_ipc_handle(handle)
            assert first.ptr != second.ptr
            assert second.transport == "cached"
            device.write(first.ptr + 9, b"both")
            first.close()
            first.close()
            assert device.read(second.ptr + 9, 4) == b"both"
            second.close()
            with pytest.raises(ze_ipc.AddressNotFound):
                device.read(second.ptr, 1)


def test_memory_outlives_the_exporters_objects(device: ze_ipc.Device) -> None:
    reservation = device.reserve(3 * PAGE)
    map_objects(device, reservation, [PAGE] * 3)
    data = fill(device, reservation.ptr, 3 * PAGE)
    handle = device.get_ipc_handle(reservation.ptr, 3 * PAGE)
    reservation.close()
    with device.open_ipc_handle(handle) as view:
        handle.close()
        assert device.read(view.ptr, view.size) == data


def test_a_cpu_view_outlives_close(device: ze_ipc.Device) -> None:
    with device.reserve(2 * PAGE) as reservation:
        map_objects(device, reservation, [PAGE] * 2)
        data = fill(device, reservation.ptr, 2 * PAGE)
        with device.get_ipc_handle(reservation.ptr + 7, PAGE) as handle:
            view = device.open_ipc_handle(handle)
            window = memoryview(view)
            view.close()
            assert bytes(window) == data[7 : 7 + PAGE]
            window.release()
            with pytest.raises((BufferError, ze_ipc.Closed)):
                memoryview(view)


def test_reexport_of_an_imported_range(device: ze_ipc.Device) -> None:
    with device.reserve(8 * PAGE) as reservation:
        map_objects(device, reservation, [2 * PAGE] * 4)
        data = fill(device, reservation.ptr, 8 * PAGE)
        with (
            device.get_ipc_handle(reservation.ptr + PAGE, 6 * PAGE) as first,
            device.open_ipc_handle(first) as view,
            device.get_ipc_handle(view.ptr + 10, 4 * PAGE) as second,
            device.open_ipc_handle(second) as again,
        ):
            assert device.read(again.ptr, again.size) == data[PAGE + 10 : PAGE + 10 + 4 * PAGE]


def test_address_range_of_everything(device: ze_ipc.Device) -> None:
    with device.reserve(4 * PAGE) as reservation, device.allocate(100) as usm:
        map_objects(device, reservation, [2 * PAGE])
        assert device.address_range(reservation.ptr + 5) == (reservation.ptr, 2 * PAGE)
        assert device.address_range(usm.ptr + 5)[0] == usm.ptr
        with pytest.raises(ze_ipc.AddressNotFound):
            device.address_range(reservation.ptr + 3 * PAGE)


def test_handles_are_data(device: ze_ipc.Device) -> None:
    import pickle

    with device.reserve(PAGE) as reservation:
        map_objects(device, reservation, [PAGE])
        with device.get_ipc_handle(reservation.ptr, PAGE) as handle:
            copy = ze_ipc.RangeHandle.from_bytes(bytes(handle))
            assert copy == handle
            assert hash(copy) == hash(handle)
            assert pickle.loads(pickle.dumps(handle)) == handle
            copy.close()  # owns nothing
            assert device.can_open(copy)
            with device.get_ipc_handle(reservation.ptr, PAGE) as other:
                assert other != handle
