"""CPU access on the mock: views and byte-granular reads and writes, own and foreign memory."""

from __future__ import annotations

import ctypes
import errno
import random
import socket
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from ze_ipc._mock import lib as mock
from ze_ipc._xe import lib
from ze_ipc.errors import InvalidSize, KernelError, OutOfHostMemory
from ze_ipc.xe import XeBackend, cpu, open_mock

PAGE = 4096
OTHER = 7
"""Another mock device: what comes from it is foreign memory."""


@pytest.fixture
def backend() -> Iterator[XeBackend]:
    with open_mock() as opened:
        yield opened
        mock.xe_mock_clear_faults(0)


def soon() -> float:
    return time.monotonic() + 20


def fill(backend: XeBackend, objects: array[int], pages: int) -> list[bytes]:
    """Random bytes in every object; returns them."""
    source = random.Random(7)
    contents = [source.randbytes(pages * PAGE) for _ in objects]
    count = len(objects)
    backend.write_extents(
        objects,
        array("Q", bytes(8 * count)),
        array("Q", [pages * PAGE] * count),
        memoryview(b"".join(contents)),
    )
    return contents


def view(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


@pytest.mark.parametrize("placement", ["device", "host"])
def test_a_view_is_the_extents_back_to_back(backend: XeBackend, placement: str) -> None:
    objects = backend.create_objects(3 * PAGE, placement, 4)  # type: ignore[arg-type]
    contents = fill(backend, objects, 3)
    columns = [(0, 0, 3), (1, 1, 2), (3, 2, 1), (1, 0, 1), (2, 0, 2), (0, 1, 1)]
    mapping = backend.cpu_map(
        array("Q", [objects[i] for i, _, _ in columns]),
        array("Q", [offset * PAGE for _, offset, _ in columns]),
        array("Q", [size * PAGE for _, _, size in columns]),
        True,
    )
    expected = b"".join(contents[i][o * PAGE : (o + s) * PAGE] for i, o, s in columns)
    assert mapping.size == len(expected)
    assert view(mapping.address, mapping.size) == expected
    # The first page of object 1 is there once, its second under another address too.
    ctypes.memmove(mapping.address + 3 * PAGE, b"mark", 4)
    got = bytearray(4)
    backend.read_extents(objects[1:2], array("Q", [PAGE]), array("Q", [4]), memoryview(got))
    assert got == b"mark"
    mapping.close()
    mapping.close()
    assert mapping.closed
    backend.release_objects(objects)


def test_a_view_outlives_objects_and_device() -> None:
    backend = open_mock()
    objects = backend.create_objects(PAGE, "host", 2)
    contents = fill(backend, objects, 1)
    mapping = backend.cpu_map(objects, array("Q", [0, 0]), array("Q", [PAGE, PAGE]), False)
    backend.release_objects(objects)
    backend.close()
    assert view(mapping.address, mapping.size) == b"".join(contents)
    mapping.close()


def test_bytes_at_any_offset_and_of_any_size(backend: XeBackend) -> None:
    objects = backend.create_objects(4 * PAGE, "device", 3)
    model = [bytearray(content) for content in fill(backend, objects, 4)]
    source = random.Random(3)
    for _ in range(60):
        extents = []
        for _ in range(source.randint(1, 6)):
            offset = source.randrange(4 * PAGE)
            extents.append((source.randrange(3), offset, source.randint(1, 4 * PAGE - offset)))
        columns = (
            array("Q", [objects[i] for i, _, _ in extents]),
            array("Q", [offset for _, offset, _ in extents]),
            array("Q", [size for _, _, size in extents]),
        )
        total = sum(size for _, _, size in extents)
        if source.random() < 0.5:
            data = source.randbytes(total)
            backend.write_extents(*columns, memoryview(data))
            for i, offset, size in extents:
                model[i][offset : offset + size], data = data[:size], data[size:]
        else:
            into = bytearray(total)
            backend.read_extents(*columns, memoryview(into))
            assert into == b"".join(model[i][o : o + s] for i, o, s in extents)
    backend.release_objects(objects)


def test_an_extent_longer_than_a_chunk(backend: XeBackend) -> None:
    size = 40 << 20
    objects = backend.create_objects(size, "host", 1)
    data = random.Random(1).randbytes(size)
    columns = objects, array("Q", [0]), array("Q", [size])
    backend.write_extents(*columns, memoryview(data))
    into = bytearray(size)
    backend.read_extents(*columns, memoryview(into))
    assert into == data
    backend.release_objects(objects)


def test_a_buffer_of_another_length_is_refused(backend: XeBackend) -> None:
    objects = backend.create_objects(PAGE, "host", 1)
    with pytest.raises(InvalidSize):
        backend.read_extents(objects, array("Q", [0]), array("Q", [9]), memoryview(bytearray(8)))
    backend.release_objects(objects)


def test_foreign_memory_is_reached_through_its_dma_buf(backend: XeBackend) -> None:
    with open_mock(OTHER) as other:
        objects = other.create_objects(2 * PAGE, "host", 3)
        contents = fill(other, objects, 2)
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with left, right:
            sender = threading.Thread(
                target=other.send_objects, args=(left.fileno(), objects, soon())
            )
            sender.start()
            got = backend.receive_objects(right.fileno(), array("Q", [2 * PAGE] * 3), soon())
            sender.join()
        into = bytearray(2 * PAGE)
        backend.read_extents(got[1:2], array("Q", [0]), array("Q", [2 * PAGE]), memoryview(into))
        assert into == contents[1]
        mapping = backend.cpu_map(got, array("Q", [0] * 3), array("Q", [2 * PAGE] * 3), True)
        assert view(mapping.address, mapping.size) == b"".join(contents)
        mapping.close()
        backend.release_objects(got)
        other.release_objects(objects)


def test_a_view_of_too_many_extents_is_refused_before_any_map(backend: XeBackend) -> None:
    limit = int(Path("/proc/sys/vm/max_map_count").read_text())
    count = limit + 1
    objects = array("Q", [backend.create_object(PAGE, "host")])
    before = mock.xe_mock_count(0, lib.DRM_IOCTL_XE_GEM_MMAP_OFFSET)
    with pytest.raises(BufferError, match="max_map_count"):
        backend.cpu_map(objects * count, array("Q", [0]) * count, array("Q", [PAGE]) * count, False)
    assert mock.xe_mock_count(0, lib.DRM_IOCTL_XE_GEM_MMAP_OFFSET) == before
    backend.release_objects(objects)


def test_a_map_that_fails_leaves_nothing(backend: XeBackend) -> None:
    objects = backend.create_objects(PAGE, "host", 5)
    assert mock.xe_mock_fault(0, lib.DRM_IOCTL_XE_GEM_MMAP_OFFSET, 3, errno.ENOMEM, 0) == 0
    before = len(Path("/proc/self/maps").read_text().splitlines())
    with pytest.raises(BufferError) as caught:
        backend.cpu_map(objects, array("Q", bytes(40)), array("Q", [PAGE] * 5), False)
    assert isinstance(caught.value.__cause__, OutOfHostMemory)
    assert caught.value.__cause__.object_index == 2
    assert len(Path("/proc/self/maps").read_text().splitlines()) <= before + 1
    backend.release_objects(objects)


@pytest.mark.parametrize(("offset", "size"), [(1, PAGE), (0, 100), (0, 0)])
def test_a_view_is_whole_pages(backend: XeBackend, offset: int, size: int) -> None:
    objects = backend.create_objects(2 * PAGE, "host", 1)
    with pytest.raises(BufferError):
        backend.cpu_map(objects, array("Q", [offset]), array("Q", [size]), False)
    backend.release_objects(objects)


def test_a_read_of_an_object_that_is_not_held_is_named(backend: XeBackend) -> None:
    objects = array("Q", [backend.create_object(PAGE, "host"), 4242])
    with pytest.raises(KernelError) as caught:
        backend.read_extents(
            objects, array("Q", [0, 0]), array("Q", [1, 1]), memoryview(bytearray(2))
        )
    assert (caught.value.errno, caught.value.object_index) == (errno.EBADF, 1)
    backend.release_objects(objects[:1])


def test_an_unclosed_view_warns() -> None:
    with open_mock() as backend:
        objects = backend.create_objects(PAGE, "host", 1)
        dropped = [backend.cpu_map(objects, array("Q", [0]), array("Q", [PAGE]), False)]
        backend.release_objects(objects)
        with pytest.warns(ResourceWarning):
            dropped.clear()


def test_memory_beyond_a_small_bar_is_not_touched(
    backend: XeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with open_mock(OTHER) as other, left, right:
        theirs = other.create_objects(PAGE, "host", 1)
        sender = threading.Thread(target=other.send_objects, args=(left.fileno(), theirs, soon()))
        sender.start()
        got = backend.receive_objects(right.fileno(), array("Q", [PAGE]), soon())
        sender.join()
        monkeypatch.setattr(backend._objects, "small_bar", True)
        columns = got, array("Q", [0]), array("Q", [PAGE])
        with pytest.raises(BufferError, match="BAR"):
            backend.cpu_map(*columns, False)
        with pytest.raises(cpu.NotCpuVisible):
            cpu.cpu_copy(
                backend._device,
                *columns,
                memoryview(bytearray(PAGE)),
                False,
                backend._objects.untouchable,
            )
        backend.release_objects(got)
        other.release_objects(theirs)
