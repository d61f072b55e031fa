"""Objects, references, usm, ownership and life of the backend on the mock."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
import time
from array import array
from collections.abc import Iterator

import pytest

from ze_ipc._mock import ffi as mock_ffi
from ze_ipc._mock import lib as mock
from ze_ipc._xe import lib
from ze_ipc.backend import Backend
from ze_ipc.errors import (
    Closed,
    ForkedProcess,
    InvalidArgument,
    InvalidSize,
    KernelError,
    OutOfDeviceMemory,
    OutOfHostMemory,
    UnsupportedAlignment,
)
from ze_ipc.mock_tree import PLATFORMS
from ze_ipc.xe import XeBackend, open_mock

PAGE = 4096
LNL = 8
"""A mock device of the integrated profile."""


@pytest.fixture
def backend() -> Iterator[XeBackend]:
    with open_mock() as opened:
        yield opened
        mock.xe_mock_clear_faults(0)


def test_the_backend_is_one(backend: XeBackend) -> None:
    checked: Backend = backend
    assert checked.info.is_mock
    assert checked.info.render_node == "mock:0"
    assert checked.info.device_memory > 0
    assert checked.info.page_size == PAGE
    assert len(checked.info.uuid) == 16
    assert checked.info.uuid[:4] == bytes((0x86, 0x80, 0x0B, 0xE2))


def test_an_integrated_device_has_no_memory_of_its_own() -> None:
    with open_mock(LNL, profile="lnl") as backend:
        assert backend.info.device_memory == 0
        objects = backend.create_objects(PAGE, "device", 2)
        assert backend.object_sizes(objects) == array("Q", [PAGE, PAGE])
        backend.release_objects(objects)


@pytest.mark.parametrize(("index", "profile"), [(0, "bmg"), (3, "bmg"), (LNL, "lnl")])
def test_a_mock_device_sits_where_the_preload_library_shows_it(index: int, profile: str) -> None:
    with open_mock(index, profile=profile) as backend:
        assert backend.info.pci_address == PLATFORMS[profile].pci_address(index)


def test_a_device_cannot_become_another(backend: XeBackend) -> None:
    with pytest.raises(InvalidArgument):
        open_mock(0, profile="lnl")
    with pytest.raises(InvalidArgument):
        open_mock(99, profile="bmg")


def test_references_are_counted(backend: XeBackend) -> None:
    objects = backend.create_objects(2 * PAGE, "device", 3)
    backend.retain_objects(array("Q", [*objects, objects[0]]))
    backend.release_objects(objects)
    assert backend.live_objects == 3
    backend.release_objects(objects)
    assert backend.live_objects == 1
    assert backend.object_sizes(objects[:1]) == array("Q", [2 * PAGE])
    backend.release_objects(objects[:1])
    assert backend.live_objects == 0


def test_retain_is_all_or_nothing(backend: XeBackend) -> None:
    objects = backend.create_objects(PAGE, "host", 2)
    with pytest.raises(KernelError) as caught:
        backend.retain_objects(array("Q", [*objects, 77]))
    assert (caught.value.errno, caught.value.object_index) == (errno.EBADF, 2)
    backend.release_objects(objects)
    assert backend.live_objects == 0


def test_release_goes_through_to_the_end(backend: XeBackend) -> None:
    objects = backend.create_objects(PAGE, "host", 2)
    with pytest.raises(KernelError) as caught:
        backend.release_objects(array("Q", [objects[0], 1 << 40, objects[1]]))
    assert caught.value.object_index == 1
    assert backend.live_objects == 0


def test_creation_is_all_or_nothing(backend: XeBackend) -> None:
    assert mock.xe_mock_fault(0, lib.DRM_IOCTL_XE_GEM_CREATE, 4, errno.ENOSPC, 0) == 0
    with pytest.raises(OutOfDeviceMemory):
        backend.create_objects(PAGE, "device", 10)
    assert backend.live_objects == 0
    assert mock.xe_mock_fault(0, lib.DRM_IOCTL_XE_GEM_CREATE, 4, errno.ENOMEM, 0) == 0
    with pytest.raises(OutOfHostMemory):
        backend.create_objects(PAGE, "host", 10)
    assert backend.live_objects == 0


def test_more_than_the_device_has_is_out_of_device_memory(backend: XeBackend) -> None:
    with pytest.raises(OutOfDeviceMemory):
        backend.create_object(1 << 50, "device")


@pytest.mark.parametrize(
    ("size", "cls"),
    [
        (0, InvalidSize),
        (-1, InvalidSize),
        (1, UnsupportedAlignment),
        (PAGE + 1, UnsupportedAlignment),
    ],
)
def test_sizes_are_pages(backend: XeBackend, size: int, cls: type[Exception]) -> None:
    with pytest.raises(cls):
        backend.create_object(size, "host")


def test_reservations(backend: XeBackend) -> None:
    address = backend.reserve(PAGE, None, 1 << 20, 3 * PAGE)
    assert address % (1 << 20) == 3 * PAGE
    with pytest.raises(InvalidArgument):
        backend.reserve(PAGE, address, PAGE, 0)
    with pytest.raises(UnsupportedAlignment):
        backend.reserve(PAGE, 12345, PAGE, 0)
    with pytest.raises(UnsupportedAlignment):
        backend.reserve(PAGE, None, PAGE, 1)
    with pytest.raises(InvalidSize):
        backend.reserve(100, None, PAGE, 0)
    with pytest.raises(InvalidArgument):
        backend.reserve(PAGE, 0, PAGE, 0)
    with pytest.raises(OutOfDeviceMemory):
        backend.reserve(1 << 48, None, PAGE, 0)
    backend.unreserve(address, PAGE)
    assert backend.reserve(PAGE, address, PAGE, 0) == address
    backend.unreserve(address, PAGE)


@pytest.mark.parametrize("kind", ["device", "host", "shared"])
@pytest.mark.parametrize("size", [1, PAGE, 100_000])
def test_usm(backend: XeBackend, kind: str, size: int) -> None:
    address, obj = backend.allocate_usm(size, kind)  # type: ignore[arg-type]
    assert address % PAGE == 0
    assert backend.object_sizes(array("Q", [obj]))[0] >= size
    backend.free_usm(address, size, obj)
    assert backend.live_objects == 0


def test_usm_that_cannot_be_bound_leaves_nothing(backend: XeBackend) -> None:
    assert mock.xe_mock_fault(0, lib.DRM_IOCTL_XE_VM_BIND, 1, errno.ENOSPC, 0) == 0
    with pytest.raises(OutOfDeviceMemory):
        backend.allocate_usm(PAGE, "device")
    assert backend.live_objects == 0


def test_close_is_idempotent_and_later_use_is_named() -> None:
    backend = open_mock()
    objects = backend.create_objects(PAGE, "host", 5)
    address = backend.reserve(5 * PAGE, None, PAGE, 0)
    zeros, sizes = array("Q", bytes(40)), array("Q", [PAGE] * 5)
    backend.map_extents(address, objects, zeros, sizes, array("B", bytes(5)), time.monotonic() + 9)
    backend.close()
    backend.close()
    stats = mock_ffi.new("struct xe_mock_stats *")
    assert mock.xe_mock_stats(0, stats) == 0
    assert (stats.files, stats.objects, stats.mappings) == (0, 0, 0)
    for use in (
        lambda: backend.create_object(PAGE, "host"),
        lambda: backend.reserve(PAGE, None, PAGE, 0),
        lambda: backend.release_objects(objects),
        lambda: backend.copy(address, address + PAGE, 8, time.monotonic() + 1),
    ):
        with pytest.raises(Closed):
            use()
    assert "closed" in repr(backend)


def test_close_waits_for_calls_of_other_threads_without_blocking() -> None:
    backend = open_mock()
    with backend._device as pointer:
        backend.close()
        # The file is still there for who is inside.
        assert lib.xe_handles_live(pointer) == 0
    with pytest.raises(Closed), backend._device:
        pass


def test_a_backend_that_is_dropped_open_warns_and_closes() -> None:
    dropped = [open_mock()]
    with pytest.warns(ResourceWarning):
        dropped.clear()


def _use_after_fork(backend: XeBackend, answer: object) -> None:
    try:
        backend.create_object(PAGE, "host")
    except ForkedProcess:
        backend.close()
        os.write(answer, b"forked")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_is_told(backend: XeBackend) -> None:
    read, write = os.pipe()
    child = multiprocessing.get_context("fork").Process(
        target=_use_after_fork, args=(backend, write)
    )
    child.start()
    os.close(write)
    child.join(20)
    answer = os.read(read, 100)
    os.close(read)
    child.close()
    assert answer == b"forked"
    # The parent's device is untouched.
    backend.release_objects(array("Q", [backend.create_object(PAGE, "host")]))


def test_create_and_release_from_many_threads(backend: XeBackend) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(100):
                objects = backend.create_objects(PAGE, "host", 10)
                backend.retain_objects(objects)
                backend.release_objects(objects)
                backend.release_objects(objects)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert backend.live_objects == 0
