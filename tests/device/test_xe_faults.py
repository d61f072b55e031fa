"""The whole job with each ioctl failing in turn: an error of ours or success, and nothing left."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from array import array
from collections.abc import Iterator

import pytest

from ze_ipc._mock import ffi as mock_ffi
from ze_ipc._mock import lib as mock
from ze_ipc._xe import lib
from ze_ipc.errors import ZeIpcError
from ze_ipc.xe import XeBackend, open_mock

PAGE, COUNT = 4096, 6

REQUESTS = {
    "GEM_CREATE": lib.DRM_IOCTL_XE_GEM_CREATE,
    "PRIME_HANDLE_TO_FD": lib.DRM_IOCTL_PRIME_HANDLE_TO_FD,
    "PRIME_FD_TO_HANDLE": lib.DRM_IOCTL_PRIME_FD_TO_HANDLE,
    "VM_BIND": lib.DRM_IOCTL_XE_VM_BIND,
    "WAIT_USER_FENCE": lib.DRM_IOCTL_XE_WAIT_USER_FENCE,
    "GEM_MMAP_OFFSET": lib.DRM_IOCTL_XE_GEM_MMAP_OFFSET,
    "EXEC_QUEUE_CREATE": lib.DRM_IOCTL_XE_EXEC_QUEUE_CREATE,
    "EXEC": lib.DRM_IOCTL_XE_EXEC,
}
NUMBERS = [
    errno.EINTR,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EINVAL,
    errno.ENOENT,
    errno.EMFILE,
    errno.EBUSY,
    errno.EIO,
    errno.ECANCELED,
    errno.ENODEV,
    errno.ENOBUFS,
    errno.EOPNOTSUPP,
    errno.ETIME,
    errno.EACCES,
]


@pytest.fixture
def pair() -> Iterator[tuple[XeBackend, XeBackend]]:
    with open_mock() as exporter, open_mock() as importer:
        yield exporter, importer
        mock.xe_mock_clear_faults(0)


def soon() -> float:
    return time.monotonic() + 20


def held() -> tuple[int, int, int]:
    stats = mock_ffi.new("struct xe_mock_stats *")
    assert mock.xe_mock_stats(0, stats) == 0
    return stats.objects, stats.handles, stats.mappings


def shared(
    undo: contextlib.ExitStack, exporter: XeBackend, importer: XeBackend, objects: array[int]
) -> array[int]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def send() -> None:
        with contextlib.suppress(ZeIpcError), left:
            exporter.send_objects(left.fileno(), objects, soon())

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with right:
            got = importer.receive_objects(right.fileno(), array("Q", [PAGE] * COUNT), soon())
    finally:
        sender.join()
    undo.callback(importer.release_objects, got)
    return got


def mapped(undo: contextlib.ExitStack, backend: XeBackend, objects: array[int]) -> int:
    address = backend.reserve(COUNT * PAGE, None, PAGE, 0)
    undo.callback(backend.unreserve, address, COUNT * PAGE)
    zeros, sizes = array("Q", bytes(8 * COUNT)), array("Q", [PAGE] * COUNT)
    backend.map_extents(address, objects, zeros, sizes, array("B", bytes(COUNT)), soon())
    undo.callback(backend.unmap, address, COUNT * PAGE, soon())
    return address


def job(exporter: XeBackend, importer: XeBackend) -> None:
    """Everything once; what it proves is that the bytes that arrive are those that were written."""
    # So that the job makes a queue and its batch, too.
    importer._copies.close()
    with contextlib.ExitStack() as undo:
        objects = exporter.create_objects(PAGE, "device", COUNT)
        undo.callback(exporter.release_objects, objects)
        zeros, sizes = array("Q", bytes(8 * COUNT)), array("Q", [PAGE] * COUNT)
        data = bytearray(bytes(range(256)) * (COUNT * PAGE // 256))
        exporter.write_extents(objects, zeros, sizes, memoryview(data))
        got = shared(undo, exporter, importer, objects)
        address = mapped(undo, importer, got)
        importer.fill(address + 100, 0xEE, 2 * PAGE, soon())
        data[100 : 100 + 2 * PAGE] = b"\xee" * (2 * PAGE)
        importer.cpu_map(got, zeros, sizes, True).close()
        into = bytearray(COUNT * PAGE)
        exporter.read_extents(objects, zeros, sizes, memoryview(into))
        assert into == data


@pytest.mark.parametrize("name", REQUESTS)
def test_each_call_that_fails(pair: tuple[XeBackend, XeBackend], name: str) -> None:
    request = REQUESTS[name]
    mock.xe_mock_reset_counts(0)
    job(*pair)
    calls = mock.xe_mock_count(0, request)
    assert calls > 0
    # The copy engine's batch lives until close.
    before = held()
    outcomes = set()
    for nth in range(1, calls + 1):
        for number in NUMBERS:
            assert mock.xe_mock_fault(0, request, nth, number, 0) == 0
            try:
                job(*pair)
            except (ZeIpcError, BufferError) as error:
                outcomes.add(type(error).__name__)
                # The engine may have lost its queue, and gets a new one here.
                mock.xe_mock_clear_faults(0)
                job(*pair)
            mock.xe_mock_clear_faults(0)
            assert held() == before, f"call {nth} failing with {errno.errorcode[number]}"
    # A wait for a fence that is written already asks nobody.
    assert outcomes or name == "WAIT_USER_FENCE"
