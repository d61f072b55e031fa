"""What an open costs in ioctls, calls and descriptors, whatever the number of objects or opens."""

from __future__ import annotations

import os
import resource
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ze_ipc
from helpers.calls import WAITING, calls_of
from helpers.pages import PAGE, pages_of
from ze_ipc._mock import lib as mock
from ze_ipc._xe import lib
from ze_ipc.device import Device

SLICES = 12
"""Quarters of a second that a slow machine may take, at two calls each."""
BIND, EXPORT, IMPORT = (
    lib.DRM_IOCTL_XE_VM_BIND,
    lib.DRM_IOCTL_PRIME_HANDLE_TO_FD,
    lib.DRM_IOCTL_PRIME_FD_TO_HANDLE,
)


@pytest.fixture
def exporter(xe_mock: ze_ipc.Device) -> ze_ipc.Device:
    return xe_mock


@pytest.fixture
def importer(exporter: ze_ipc.Device) -> Iterator[ze_ipc.Device]:
    """Another DRM file on the same device: to the kernel another process would look the same."""
    with ze_ipc.open_device("mock") as device:
        yield device


class Counts:
    """ioctls since the last look, by both devices of this process."""

    def __init__(self) -> None:
        self._last = dict.fromkeys((BIND, EXPORT, IMPORT), 0)
        self.take()

    def take(self) -> dict[int, int]:
        now = {request: int(mock.xe_mock_count(0, request)) for request in self._last}
        passed = {request: now[request] - self._last[request] for request in now}
        self._last = now
        return passed


def fd_count() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("count", [1, 16, 64, 65, 300, 3000])
def test_ioctls_of_an_open(exporter: Device, importer: Device, count: int) -> None:
    with (
        pages_of(exporter, count) as reservation,
        exporter.get_ipc_handle(reservation.ptr, reservation.size) as handle,
    ):
        counts = Counts()
        with importer.open_ipc_handle(handle) as view:
            assert counts.take() == {BIND: 1, EXPORT: count, IMPORT: count}
            assert view.transport == "broker"
            with importer.open_ipc_handle(handle) as again:
                # The second open asks the kernel for one bind, and for no object.
                assert counts.take() == {BIND: 1, EXPORT: 0, IMPORT: 0}
                assert again.transport == "cached"
        assert counts.take() == {BIND: 2, EXPORT: 0, IMPORT: 0}
        assert importer._backend.live_objects == 0  # type: ignore[attr-defined]


def test_calls_that_may_wait_do_not_grow_with_the_objects(
    exporter: Device, importer: Device
) -> None:
    """The number of times that the GIL is given up is the same, but for one return to Python each
    quarter of a second, without which no signal handler would run.
    """
    exports, opens = [], []
    for count in (2_000, 12_000):
        with pages_of(exporter, count) as reservation:
            window = reservation.ptr, reservation.size
            exporter.get_ipc_handle(*window).close()  # the first one starts the broker
            calls, handle = calls_of(exporter.get_ipc_handle, *window, only=WAITING)
            exports.append(calls)
            with handle:
                calls, view = calls_of(importer.open_ipc_handle, handle, 60.0, only=WAITING)
                view.close()
                opens.append(calls)
    assert exports[0] == exports[1]
    assert 10 < opens[0] <= opens[1] + SLICES <= opens[0] + 2 * SLICES


def test_python_calls_of_a_small_open(exporter: Device, importer: Device) -> None:
    """The interpreter's share of the smallest open, where it is nearly all that there is."""
    with pages_of(exporter, 1) as reservation:
        for _ in range(2):  # the first one also fills caches
            export, handle = calls_of(exporter.get_ipc_handle, reservation.ptr, PAGE)
            with handle:
                opened, view = calls_of(importer.open_ipc_handle, handle)
                view.close()
    assert export <= 145
    assert opened <= 215


def test_one_importer_of_a_thousand_handles(exporter: Device, importer: Device) -> None:
    with pages_of(exporter, 1000) as reservation:
        counts = Counts()
        before = fd_count()
        handles = [
            exporter.get_ipc_handle(reservation.ptr + index * PAGE, 3 * PAGE)
            for index in range(998)
        ]
        views = [importer.open_ipc_handle(handle) for handle in handles]
        assert counts.take() == {BIND: 998, EXPORT: 3 * 998, IMPORT: 3 * 998}
        assert fd_count() <= before + 40
        # An object that three handles bring is one object.
        assert importer._backend.live_objects == 1000  # type: ignore[attr-defined]
        first, last = (calls_of(importer.address_range, views[i].ptr)[0] for i in (0, -1))
        assert last <= 2 * first
        for owner in (*views, *handles):
            owner.close()
        assert importer._backend.live_objects == 0  # type: ignore[attr-defined]


def test_64_importers_of_one_export(exporter: Device) -> None:
    """At once, of a range that takes several batches; each reads the bytes."""
    count = 300
    with pages_of(exporter, count) as reservation:
        exporter.write(reservation.ptr, b"".join(bytes([i % 251]) * PAGE for i in range(count)))
        with exporter.get_ipc_handle(reservation.ptr, reservation.size) as handle:
            counts, raw = Counts(), bytes(handle)

            def open_it(number: int) -> bytes:
                with ze_ipc.open_device("mock") as device, device.open_ipc_handle(raw, 60) as view:
                    return device.read(view.ptr + number * PAGE, 2)

            with ThreadPoolExecutor(64) as pool:
                read = list(pool.map(open_it, range(64)))
            assert read == [bytes([number]) * 2 for number in range(64)]
            # The CPU reads an imported object through a descriptor of its own.
            assert counts.take() == {BIND: 2 * 64, EXPORT: 64 * count + 64, IMPORT: 64 * count}


def test_descriptors_stay_few(exporter: Device, importer: Device) -> None:
    """A hard look: with room for 300 more, the range still opens, though nothing asks for less."""
    with (
        pages_of(exporter, 4000) as reservation,
        exporter.get_ipc_handle(reservation.ptr, reservation.size) as handle,
    ):
        importer.open_ipc_handle(handle).close()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 301, hard))
        try:
            with importer.open_ipc_handle(handle, timeout=60) as view:
                assert view.objects == 4000
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_memory_of_an_object(
    exporter: Device, importer: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the peak, 200 bytes on either side beyond the kernel's and the mock's own: what Python
    allocates, and what C does for each object: 16 bytes of a table of handles that doubles, and in
    a bind 80 bytes of its argument.
    """
    count, handles, operation = 20_000, 2 * 16, 80
    peaks = []
    bind = type(importer._backend).map_extents
    binding = []

    def seen(*arguments: Any) -> None:
        binding.append(tracemalloc.get_traced_memory()[0] - before)
        bind(*arguments)

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with (
            pages_of(exporter, count) as reservation,
            exporter.get_ipc_handle(reservation.ptr, reservation.size) as handle,
        ):
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            monkeypatch.setattr(type(importer._backend), "map_extents", seen)
            importer.open_ipc_handle(handle, timeout=60).close()
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    exporting, importing = (peak / count for peak in peaks)
    assert exporting + handles <= 200
    assert importing + handles <= 200
    assert len(binding) == 1
    assert binding[0] / count + handles + operation <= 200


def test_readers_that_are_slow(exporter: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty readers that dawdle hold two batches each at most, far below the limit of what one
    user may have in flight; nobody sees ETOOMANYREFS.
    """
    count, readers = 1200, 20
    pauses = threading.Event()
    receive = type(exporter._backend).receive_objects

    def dawdle(self: object, *arguments: object) -> object:
        pauses.wait(0.5)
        return receive(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(type(exporter._backend), "receive_objects", dawdle)
    with (
        pages_of(exporter, count) as reservation,
        exporter.get_ipc_handle(reservation.ptr, reservation.size) as handle,
    ):
        raw = bytes(handle)

        def open_it(_: int) -> int:
            with ze_ipc.open_device("mock") as device, device.open_ipc_handle(raw, 60) as view:
                return view.objects

        with ThreadPoolExecutor(readers) as pool:
            assert list(pool.map(open_it, range(readers))) == [count] * readers


def test_the_profile_sees_calls() -> None:
    """The measure of this file is not blind."""
    assert calls_of(lambda: [len(()) for _ in range(50)])[0] >= 50
    assert calls_of(lambda: [os.stat("/") for _ in range(50)], only=WAITING)[0] == 50  # noqa: PTH116
    assert sys.getprofile() is None
