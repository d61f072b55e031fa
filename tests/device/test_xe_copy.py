"""Copies and fills by the mock's copy engine, and what happens when it faults."""

from __future__ import annotations

import errno
import random
import threading
import time
from array import array
from collections.abc import Iterator

import pytest

from ze_ipc._mock import lib as mock
from ze_ipc._xe import lib
from ze_ipc.errors import (
    DeviceLost,
    InvalidArgument,
    OpenTimeout,
    OutOfDeviceMemory,
    OutOfHostMemory,
    UnsupportedFeature,
)
from ze_ipc.xe import XeBackend, copy, open_mock

PAGE = 4096
LNL = 8
"""A mock device of the integrated profile."""


@pytest.fixture(params=["bmg", "lnl"])
def backend(request: pytest.FixtureRequest) -> Iterator[XeBackend]:
    index = {"bmg": 0, "lnl": LNL}[request.param]
    with open_mock(index, profile=request.param) as opened:
        yield opened
        mock.xe_mock_clear_faults(index)


def soon() -> float:
    return time.monotonic() + 30


class Block:
    """Mapped memory, readable and writable by the CPU through its object."""

    def __init__(self, backend: XeBackend, size: int, placement: str = "device") -> None:
        self.backend, self.size = backend, size
        self.objects = backend.create_objects(size, placement, 1)  # type: ignore[arg-type]
        self.address = backend.reserve(size, None, PAGE, 0)
        columns = array("Q", [0]), array("Q", [size]), array("B", [0])
        backend.map_extents(self.address, self.objects, *columns, soon())

    def read(self) -> bytearray:
        into = bytearray(self.size)
        view = memoryview(into)
        self.backend.read_extents(self.objects, array("Q", [0]), array("Q", [self.size]), view)
        view.release()
        return into

    def write(self, data: bytes) -> None:
        self.backend.write_extents(
            self.objects, array("Q", [0]), array("Q", [self.size]), memoryview(data)
        )

    def give_back(self) -> None:
        self.backend.unmap(self.address, self.size, soon())
        self.backend.unreserve(self.address, self.size)
        self.backend.release_objects(self.objects)


SIZES = [1, 3, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 12345, 65536, 65537, 262144, 300001]


@pytest.mark.parametrize("placements", [("device", "host"), ("host", "device")])
def test_copies_of_any_size_at_any_alignment(
    backend: XeBackend, placements: tuple[str, str]
) -> None:
    source = random.Random(5)
    length = 320 * 1024
    src, dst = (Block(backend, length, placement) for placement in placements)
    data, model = source.randbytes(length), bytearray(source.randbytes(length))
    src.write(data)
    dst.write(bytes(model))
    for size in SIZES:
        for _ in range(3):
            start, to = (source.randrange(length - size + 1) for _ in range(2))
            backend.copy(dst.address + to, src.address + start, size, soon())
            model[to : to + size] = data[start : start + size]
    assert dst.read() == model
    assert src.read() == data
    src.give_back()
    dst.give_back()


def test_fills_of_any_size_at_any_alignment(backend: XeBackend) -> None:
    source = random.Random(6)
    length = 320 * 1024
    dst = Block(backend, length)
    model = bytearray(source.randbytes(length))
    dst.write(bytes(model))
    for size in SIZES:
        for _ in range(3):
            to, value = source.randrange(length - size + 1), source.randrange(256)
            backend.fill(dst.address + to, value, size, soon())
            model[to : to + size] = bytes([value]) * size
    assert dst.read() == model
    dst.give_back()


def test_a_copy_of_nothing_is_nothing(backend: XeBackend) -> None:
    backend.copy(1 << 30, 1 << 31, 0, soon())
    backend.fill(1 << 30, 0, 0, soon())


def test_a_copy_across_mappings_of_many_objects(backend: XeBackend) -> None:
    objects = backend.create_objects(PAGE, "host", 64)
    address = backend.reserve(64 * PAGE, None, PAGE, 0)
    zeros, sizes = array("Q", bytes(512)), array("Q", [PAGE] * 64)
    backend.map_extents(address, objects, zeros, sizes, array("B", bytes(64)), soon())
    src = Block(backend, 64 * PAGE)
    data = random.Random(8).randbytes(64 * PAGE)
    src.write(data)
    backend.copy(address + 7, src.address + 7, 64 * PAGE - 9, soon())
    into = bytearray(64 * PAGE)
    backend.read_extents(objects, zeros, sizes, memoryview(into))
    assert into[7:-2] == data[7:-2]
    assert into[:7] + into[-2:] == bytes(9)
    src.give_back()
    backend.unmap(address, 64 * PAGE, soon())
    backend.unreserve(address, 64 * PAGE)
    backend.release_objects(objects)


def test_ranges_that_overlap_are_refused(backend: XeBackend) -> None:
    block = Block(backend, 4 * PAGE)
    with pytest.raises(InvalidArgument):
        backend.copy(block.address, block.address + 10, 11, soon())
    backend.copy(block.address, block.address + 10, 10, soon())
    block.give_back()


@pytest.mark.parametrize("value", [-1, 256])
def test_a_fill_value_is_one_byte(backend: XeBackend, value: int) -> None:
    with pytest.raises(InvalidArgument):
        backend.fill(1 << 30, value, 8, soon())


def test_a_fault_is_device_lost_and_the_next_copy_works(backend: XeBackend) -> None:
    block = Block(backend, 2 * PAGE)
    block.write(bytes(range(256)) * 32)
    hole = block.address + (1 << 30)
    with pytest.raises(DeviceLost) as caught:
        backend.copy(block.address, hole, 100, soon())
    # The kernel keeps the page, from 7.1 on; so does the mock.
    assert caught.value.address == hole
    backend.copy(block.address, block.address + PAGE + 1, 255, soon())
    assert block.read()[:255] == bytes(range(1, 256))
    block.give_back()


def test_a_read_only_mapping_is_not_written(backend: XeBackend) -> None:
    block = Block(backend, PAGE)
    address = backend.reserve(PAGE, None, PAGE, 0)
    columns = array("Q", [0]), array("Q", [PAGE]), array("B", [1])
    backend.map_extents(address, block.objects, *columns, soon())
    with pytest.raises(DeviceLost):
        backend.fill(address, 1, 10, soon())
    assert block.read() == bytes(PAGE)
    backend.unmap(address, PAGE, soon())
    backend.unreserve(address, PAGE)
    block.give_back()


@pytest.mark.parametrize(
    ("request_", "number", "cls"),
    [
        (lib.DRM_IOCTL_XE_EXEC, errno.ENOMEM, OutOfDeviceMemory),
        (lib.DRM_IOCTL_XE_EXEC, errno.ECANCELED, DeviceLost),
        (lib.DRM_IOCTL_XE_EXEC_QUEUE_CREATE, errno.ENOMEM, OutOfHostMemory),
    ],
)
def test_what_the_kernel_refuses_leaves_an_engine_that_works(
    backend: XeBackend, request_: int, number: int, cls: type[Exception]
) -> None:
    block = Block(backend, PAGE)
    index = int(backend.info.render_node.removeprefix("mock:"))
    assert mock.xe_mock_fault(index, request_, 1, number, 0) == 0
    with pytest.raises(cls):
        backend.fill(block.address, 7, 10, soon())
    backend.fill(block.address, 8, 10, soon())
    assert block.read()[:10] == bytes([8]) * 10
    block.give_back()


class NeverDone:
    """The C side with a fence that is never written: the mock is too quick for one that is late."""

    def __getattr__(self, name: str) -> object:
        return getattr(lib, name)

    def xe_wait_value(self, *_: object) -> int:
        return -errno.ETIME


def test_a_copy_that_takes_too_long_is_given_up(
    backend: XeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = Block(backend, PAGE)
    with monkeypatch.context() as patch:
        patch.setattr(copy, "lib", NeverDone())
        with pytest.raises(OpenTimeout):
            backend.fill(block.address, 7, PAGE, soon())
    backend.fill(block.address, 8, PAGE, soon())
    assert block.read() == bytes([8]) * PAGE
    block.give_back()


def test_a_turn_that_does_not_come_costs_the_deadline(backend: XeBackend) -> None:
    block = Block(backend, PAGE)
    begun = time.monotonic()
    with backend._copies._turn(soon()), pytest.raises(OpenTimeout):
        backend.fill(block.address, 7, PAGE, begun + 0.2)
    assert time.monotonic() - begun < 5
    block.give_back()


def test_copies_from_many_threads(backend: XeBackend) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            src, dst = Block(backend, 4 * PAGE), Block(backend, 4 * PAGE)
            data = random.Random(seed).randbytes(4 * PAGE)
            src.write(data)
            for _ in range(10):
                backend.fill(dst.address, 0, 4 * PAGE, soon())
                backend.copy(dst.address, src.address, 4 * PAGE, soon())
                assert dst.read() == data
            src.give_back()
            dst.give_back()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_device_without_a_copy_engine_says_so(
    backend: XeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = Block(backend, PAGE)
    monkeypatch.setattr(backend._copies, "_engine", None)
    with pytest.raises(UnsupportedFeature):
        backend.fill(block.address, 0, 1, soon())
    block.give_back()


def test_memory_that_the_cpu_cannot_reach_is_read_and_written_by_the_engine(
    backend: XeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = array("Q", bytes(16))
    region = backend._facts.vram or backend._facts.system
    rc, made = backend._objects._create(objects, 0, 8 * PAGE, region, 0, lib.XE_HANDLE_INVISIBLE)
    assert (rc, made) == (0, 2)
    offsets, sizes = array("Q", [5, PAGE - 3]), array("Q", [7 * PAGE, 9])
    data = random.Random(2).randbytes(7 * PAGE + 9)
    backend.write_extents(objects, offsets, sizes, memoryview(data))
    into = bytearray(len(data))
    backend.read_extents(objects, offsets, sizes, memoryview(into))
    assert into == data
    with pytest.raises(BufferError, match="BAR"):
        backend.cpu_map(objects[:1], array("Q", [0]), array("Q", [PAGE]), False)
    backend.release_objects(objects)
