"""Owners: close twice, use after close, collect while open, fork, threads; and every wrong
argument.
"""

from __future__ import annotations

import gc
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import ze_ipc
from helpers.waiting import eventually

PAGE = 4096


@pytest.fixture
def device(xe_mock: ze_ipc.Device) -> ze_ipc.Device:
    return xe_mock


def one_page(device: ze_ipc.Device) -> ze_ipc.Reservation:
    reservation = device.reserve(PAGE)
    with device.physical_memory(PAGE) as memory:
        reservation.map(memory, at=0)
    return reservation


def test_close_twice_and_use_after_close(device: ze_ipc.Device) -> None:
    reservation = one_page(device)
    memory = device.physical_memory(PAGE)
    usm = device.allocate(10)
    handle = device.get_ipc_handle(reservation.ptr, PAGE)
    view = device.open_ipc_handle(handle)
    for owner in (view, handle, usm, memory, reservation):
        assert not owner.closed
        owner.close()
        owner.close()
        assert owner.closed
        assert repr(owner)
    for call in (
        lambda: reservation.map(memory, at=0),
        lambda: reservation.unmap(0, PAGE),
        lambda: handle.importers(),
    ):
        with pytest.raises(ze_ipc.Closed):
            call()


def test_a_closed_device_closes_everything_it_made() -> None:
    device = ze_ipc.open_device("mock")
    reservation = one_page(device)
    memory = device.physical_memory(PAGE)
    usm = device.allocate(10)
    handle = device.get_ipc_handle(reservation.ptr, PAGE)
    view = device.open_ipc_handle(handle)
    device.close()
    device.close()
    for owner in (reservation, memory, usm, handle, view):
        assert owner.closed
        owner.close()
    for call in (
        lambda: device.reserve(PAGE),
        lambda: device.get_ipc_handle(PAGE, PAGE),
        lambda: device.open_ipc_handle(bytes(handle)),
        lambda: device.read(PAGE, 1),
    ):
        with pytest.raises(ze_ipc.Closed):
            call()


@pytest.mark.parametrize(
    "make",
    [
        lambda d: d.reserve(PAGE),
        lambda d: d.physical_memory(PAGE),
        lambda d: d.allocate(PAGE),
        lambda d: d.open_ipc_handle(d.test_handle),
        lambda d: d.get_ipc_handle(d.test_ptr, PAGE),
    ],
)
def test_what_is_collected_open_is_reported_and_given_back(
    device: ze_ipc.Device, make: Callable[[Any], Any]
) -> None:
    with one_page(device) as reservation, device.get_ipc_handle(reservation.ptr, PAGE) as handle:
        device.test_handle, device.test_ptr = bytes(handle), reservation.ptr  # type: ignore[attr-defined]
        owner = make(device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del owner
            gc.collect()
        assert [w.category for w in caught] == [ResourceWarning]
        device.reserve(PAGE).close()  # the next call closes what was abandoned
        assert not device._abandoned


def test_a_device_that_is_collected_open_is_closed_with_all_it_serves() -> None:
    device = ze_ipc.open_device("mock")
    reservation = one_page(device)
    handle = device.get_ipc_handle(reservation.ptr, PAGE)
    raw = bytes(handle)
    told: list[str] = []

    def tell(message: Warning | str, category: type[Warning], *_: object) -> None:
        told.append(f"{category.__name__} {message}")  # not the warning itself: it holds its source

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = tell
        del device, reservation, handle
        gc.collect()
        assert eventually(
            lambda: not any(t.name.startswith("ze_ipc") for t in threading.enumerate())
        )
    assert all(line.startswith("ResourceWarning unclosed <") for line in told)
    assert any("<Device" in line for line in told)
    with ze_ipc.open_device("mock") as other, pytest.raises(ze_ipc.ExporterGone):
        other.open_ipc_handle(raw)


def test_an_import_that_cannot_be_entered_leaves_nothing(
    device: ze_ipc.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    with one_page(device) as reservation, device.get_ipc_handle(reservation.ptr, PAGE) as handle:
        rows, objects = len(device._table), device._backend.live_objects  # type: ignore[attr-defined]
        with monkeypatch.context() as patched:
            patched.setattr(device, "_add_import", fail)
            with pytest.raises(MemoryError):
                device.open_ipc_handle(handle)
        assert (len(device._table), device._backend.live_objects) == (rows, objects)  # type: ignore[attr-defined]
        with device.open_ipc_handle(handle) as view:
            # Whoever looks first enters it; that may fail, too, and the next one tries again.
            with monkeypatch.context() as patched:
                patched.setattr(device._rows, "add_import", fail)
                with pytest.raises(MemoryError):
                    device.address_range(view.ptr)
            assert len(device._rows) == rows
            assert device.address_range(view.ptr) == (view.ptr, PAGE)
        assert (len(device._table), device._backend.live_objects) == (rows, objects)  # type: ignore[attr-defined]


def test_fork_is_refused_at_once(device: ze_ipc.Device) -> None:
    with one_page(device) as reservation, device.get_ipc_handle(reservation.ptr, PAGE) as handle:
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            verdict = b"no error"
            try:
                os.close(readable)
                refused = 0
                for call in (
                    lambda: device.reserve(PAGE),
                    lambda: device.open_ipc_handle(handle),
                    lambda: reservation.unmap(0, PAGE),
                ):
                    try:
                        call()
                    except ze_ipc.ForkedProcess as error:
                        refused += bool(error.hint)
                handle.close()
                device.close()  # the parent owns it
                verdict = b"%d" % refused
            finally:
                os.write(writable, verdict)
                os._exit(0)
        os.close(writable)
        with os.fdopen(readable, "rb") as pipe:
            assert pipe.read() == b"3"
        os.waitpid(child, 0)
        with device.open_ipc_handle(handle) as view:  # the parent is unharmed
            assert view.size == PAGE


def test_threads_share_a_device(device: ze_ipc.Device) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                with device.reserve(8 * PAGE) as reservation:
                    for i in range(8):
                        with device.physical_memory(PAGE) as memory:
                            reservation.map(memory, at=i * PAGE)
                    mark = bytes([number, turn]) * 100
                    device.write(reservation.ptr + PAGE - 3, mark)
                    with (
                        device.get_ipc_handle(reservation.ptr, 8 * PAGE) as handle,
                        device.open_ipc_handle(handle) as view,
                    ):
                        assert device.read(view.ptr + PAGE - 3, 200) == mark
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


WRONG: list[tuple[Callable[[Any], Any], type[BaseException]]] = [
    (lambda d: d.reserve(0), ze_ipc.InvalidSize),
    (lambda d: d.reserve(-1), ze_ipc.InvalidSize),
    (lambda d: d.reserve(1), ze_ipc.UnsupportedSize),
    (lambda d: d.reserve(1 << 62), ze_ipc.OutOfDeviceMemory),
    (lambda d: d.reserve("4096"), TypeError),
    (lambda d: d.reserve(PAGE, address=1), ze_ipc.UnsupportedAlignment),
    (lambda d: d.reserve(PAGE, address=d.test_ptr), ze_ipc.ZeIpcError),
    (lambda d: d.physical_memory(0), ze_ipc.InvalidSize),
    (lambda d: d.physical_memory(PAGE + 1), ze_ipc.UnsupportedSize),
    (lambda d: d.physical_memory(1 << 60), ze_ipc.OutOfDeviceMemory),
    (lambda d: d.physical_memory(PAGE, placement="moon"), ze_ipc.InvalidArgument),
    (lambda d: d.allocate(0), ze_ipc.InvalidSize),
    (lambda d: d.allocate(PAGE, kind="moon"), ze_ipc.InvalidArgument),
    (lambda d: d.test_res.map(d.test_mem, at=0, access="w"), ze_ipc.InvalidArgument),
    (lambda d: d.test_res.map(d.test_mem, at=1), ze_ipc.UnsupportedAlignment),
    (lambda d: d.test_res.map(d.test_mem, at=PAGE, offset=1), ze_ipc.UnsupportedAlignment),
    (lambda d: d.test_res.map(d.test_mem, at=PAGE, size=PAGE - 1), ze_ipc.UnsupportedSize),
    (lambda d: d.test_res.map(d.test_mem, at=PAGE, size=0), ze_ipc.InvalidSize),
    (lambda d: d.test_res.map(d.test_mem, at=PAGE, size=-PAGE), ze_ipc.InvalidSize),
    (lambda d: d.test_res.map(d.test_mem, at=PAGE, offset=2 * PAGE), ze_ipc.InvalidArgument),
    (lambda d: d.test_res.map(d.test_mem, at=PAGE, size=4 * PAGE), ze_ipc.InvalidArgument),
    (lambda d: d.test_res.map(d.test_mem, at=16 * PAGE), ze_ipc.InvalidArgument),
    (lambda d: d.test_res.map(d.test_mem, at=-PAGE), ze_ipc.InvalidArgument),
    (lambda d: d.test_res.map(d.test_mem, at=0), ze_ipc.InvalidArgument),
    (lambda d: d.test_res.unmap(0, 0), ze_ipc.InvalidSize),
    (lambda d: d.test_res.unmap(0, 17 * PAGE), ze_ipc.InvalidArgument),
    (lambda d: d.test_res.unmap(1, PAGE), ze_ipc.UnsupportedAlignment),
    (lambda d: d.get_ipc_handle(None, PAGE), TypeError),
    (lambda d: d.get_ipc_handle(d.test_ptr, 1.5), TypeError),
    (lambda d: d.open_ipc_handle("00" * 64), TypeError),
    (lambda d: d.open_ipc_handle(b""), ze_ipc.InvalidHandle),
    (lambda d: d.open_ipc_handle(bytes(63)), ze_ipc.InvalidHandle),
    (lambda d: d.open_ipc_handle(bytes(64)), ze_ipc.InvalidHandle),
    (lambda d: d.open_ipc_handle(bytes(65)), ze_ipc.InvalidHandle),
    (lambda d: d.open_ipc_handle(d.test_handle, timeout=-1), ze_ipc.InvalidArgument),
    (lambda d: d.open_ipc_handle(d.test_handle, timeout=float("nan")), ze_ipc.InvalidArgument),
    (lambda d: d.open_ipc_handle(d.test_handle, timeout=0), ze_ipc.OpenTimeout),
    (lambda d: d.address_range(0), ze_ipc.AddressNotFound),
    (lambda d: d.address_range(-1), ze_ipc.InvalidArgument),
    (lambda d: d.read(d.test_ptr, 17 * PAGE), ze_ipc.AddressNotFound),
    (lambda d: d.read(d.test_ptr, -1), ze_ipc.InvalidSize),
    (lambda d: d.write(d.test_ptr + PAGE - 1, b"xx"), ze_ipc.AddressNotFound),
    (lambda d: d.write(d.test_ptr, "text"), TypeError),
    (lambda d: d.copy(d.test_ptr, d.test_ptr + PAGE, 1), ze_ipc.AddressNotFound),
    (lambda d: d.copy(d.test_ptr + PAGE, d.test_ptr, 1), ze_ipc.AddressNotFound),
    (lambda d: d.fill(d.test_ptr, 256, 1), ze_ipc.InvalidArgument),
    (lambda d: d.fill(d.test_ptr, 0, 2 * PAGE), ze_ipc.AddressNotFound),
    (lambda d: ze_ipc.open_device("cuda"), ze_ipc.InvalidArgument),
    (lambda d: ze_ipc.open_device("mock", "0000:03:00.0"), ze_ipc.InvalidArgument),
    (lambda d: ze_ipc.open_device("mock", -1), ze_ipc.ZeIpcError),
    (lambda d: ze_ipc.open_device("xe"), ze_ipc.ZeIpcError),
    (lambda d: ze_ipc.RangeHandle.from_bytes(bytes(64)), ze_ipc.InvalidHandle),
]


@pytest.mark.parametrize(("call", "error"), WRONG, ids=range(len(WRONG)))
def test_wrong_arguments(
    device: ze_ipc.Device, call: Callable[[Any], Any], error: type[BaseException]
) -> None:
    test: Any = device
    with (
        device.reserve(16 * PAGE) as reservation,
        device.physical_memory(2 * PAGE) as memory,
    ):
        reservation.map(memory, at=0, size=PAGE)
        with device.get_ipc_handle(reservation.ptr, PAGE) as handle:
            test.test_res, test.test_mem = reservation, memory
            test.test_ptr, test.test_handle = reservation.ptr, bytes(handle)
            with pytest.raises(error) as caught:
                call(device)
            if isinstance(caught.value, ze_ipc.ZeIpcError):
                assert caught.value.hint
                assert str(caught.value)
