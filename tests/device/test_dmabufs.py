"""The dma-bufs behind a range, as RDMA and other drivers take them."""

from __future__ import annotations

import mmap
import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import ze_ipc

PAGE = 4096


@pytest.fixture
def device(xe_mock: ze_ipc.Device) -> ze_ipc.Device:
    return xe_mock


@pytest.fixture
def reservation(device: ze_ipc.Device) -> Iterator[ze_ipc.Reservation]:
    """Objects A, A from its third page on, B read-only, A again; then a hole."""
    with (
        device.reserve(12 * PAGE) as reservation,
        device.physical_memory(4 * PAGE) as a,
        device.physical_memory(2 * PAGE) as b,
    ):
        reservation.map(a, at=0, size=PAGE)
        reservation.map(a, at=PAGE, offset=2 * PAGE)
        reservation.map(b, at=3 * PAGE)
        reservation.map(a, at=5 * PAGE)
        device.write(reservation.ptr, b"".join(bytes([page]) * PAGE for page in range(9)))
        reservation.unmap(3 * PAGE, 2 * PAGE)
        reservation.map(b, at=3 * PAGE, access="ro")
        yield reservation


@contextmanager
def opened(
    device: ze_ipc.Device, reservation: ze_ipc.Reservation, at: int, size: int
) -> Iterator[ze_ipc.ImportedRange]:
    with (
        device.get_ipc_handle(reservation.ptr + at, size) as handle,
        device.open_ipc_handle(handle) as view,
    ):
        yield view


def bytes_of(pieces: list[ze_ipc.DmaBuf]) -> bytes:
    """What is in the range, read through the fds alone."""
    data = bytearray()
    for piece in pieces:
        assert piece.range_offset - pieces[0].range_offset == len(data)
        size = os.lseek(piece.fd, 0, os.SEEK_END)
        with mmap.mmap(piece.fd, size, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
            data += memory[piece.offset : piece.offset + piece.length]
    return bytes(data)


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 9 * PAGE), (100, 1), (PAGE - 1, 2), (PAGE + 5, 3 * PAGE), (4 * PAGE + 7, 4 * PAGE + 1)],
)
def test_the_pieces_are_the_range(device, reservation, offset, size) -> None:  # type: ignore[no-untyped-def]
    wanted = device.read(reservation.ptr + offset, size)
    with reservation.dmabufs(offset, size) as pieces:
        assert bytes_of(pieces) == wanted
        assert pieces[0].range_offset == offset
    with opened(device, reservation, offset, size) as view, view.dmabufs() as pieces:
        assert bytes_of(pieces) == wanted
        assert pieces[0].range_offset == 0
    with (
        opened(device, reservation, 0, 9 * PAGE) as view,
        view.dmabufs(offset, size) as pieces,
    ):
        assert bytes_of(pieces) == wanted


def test_one_fd_an_object(device: ze_ipc.Device, reservation: ze_ipc.Reservation) -> None:
    with reservation.dmabufs(size=9 * PAGE) as pieces:
        a, b = pieces[0].fd, pieces[2].fd
        assert a != b
        assert [(p.fd, p.offset // PAGE, p.length // PAGE, p.read_only) for p in pieces] == [
            (a, 0, 1, False),
            (a, 2, 2, False),
            (b, 0, 2, True),
            (a, 0, 4, False),
        ]
        assert all(os.get_inheritable(p.fd) is False for p in pieces)
    for fd in (a, b):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_what_is_no_range(device: ze_ipc.Device, reservation: ze_ipc.Reservation) -> None:
    with pytest.raises(ze_ipc.AddressNotFound) as caught, reservation.dmabufs():
        pass
    assert caught.value.address == reservation.ptr + 9 * PAGE
    for offset, size in ((0, 12 * PAGE + 1), (12 * PAGE + 1, None), (-1, 1)):
        with pytest.raises(ze_ipc.InvalidArgument), reservation.dmabufs(offset, size):
            pass
    for offset, size in ((0, 0), (12 * PAGE, None)):
        with pytest.raises(ze_ipc.InvalidSize), reservation.dmabufs(offset, size):
            pass
    reservation.close()
    with pytest.raises(ze_ipc.Closed), reservation.dmabufs():
        pass


def test_more_objects_than_fds(device: ze_ipc.Device) -> None:
    count = 300
    with device.reserve(count * PAGE) as reservation, ExitStack() as undo:
        for index in range(count):
            with device.physical_memory(PAGE) as memory:
                reservation.map(memory, at=index * PAGE)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        before = sum(1 for _ in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        with pytest.raises(ze_ipc.FdLimit) as caught, reservation.dmabufs():
            pass
        assert caught.value.need == count
        assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


def test_other_drivers_import_them(device: ze_ipc.Device, reservation: ze_ipc.Reservation) -> None:
    """As another open file of the driver does: PRIME import, and the same bytes."""
    from array import array

    with reservation.dmabufs(size=PAGE) as pieces, ze_ipc.open_device("mock") as other:
        fds = array("i", [os.dup(pieces[0].fd)])
        objects = other._backend.import_fds(fds, array("Q", [4 * PAGE]))
        into = bytearray(PAGE)
        one = array("Q", [0]), array("Q", [PAGE])
        other._backend.read_extents(objects, *one, memoryview(into))
        other._backend.release_objects(objects)
    assert bytes(into) == device.read(reservation.ptr, PAGE)
