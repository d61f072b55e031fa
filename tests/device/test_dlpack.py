"""The DLPack protocol to the letter, and who may close what while a tensor lives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import ze_ipc
from helpers import dlpack
from ze_ipc.xe.backend import XeBackend

PAGE = 4096
CPU, ONE_API = (1, 0), (14, 3)
READ_ONLY, COPIED = 1, 2


@contextmanager
def a_view(device: ze_ipc.Device, access: Any = "rw") -> Iterator[ze_ipc.ImportedRange]:
    with device.reserve(2 * PAGE) as reservation:
        for at in (0, PAGE):
            with device.physical_memory(PAGE) as memory:
                reservation.map(memory, at=at)
        device.write(reservation.ptr, bytes(range(256)) * 32)
        if access == "ro":
            with device.physical_memory(PAGE) as memory:
                reservation.unmap(0, PAGE)
                reservation.map(memory, at=0, access="ro")
        with device.get_ipc_handle(reservation.ptr, 2 * PAGE) as handle:
            view = device.open_ipc_handle(handle)
        try:
            yield view
        finally:
            view.close()


def test_the_struct(xe_mock: ze_ipc.Device) -> None:
    with a_view(xe_mock) as view:
        array = view.array("int16", (3, 5), (64, 4), 10)
        assert array.__dlpack_device__() == CPU
        tensor = dlpack.take(array.__dlpack__(max_version=(1, 3)))
        assert (tensor.version, tensor.flags) == ((1, 0), 0)
        assert (tensor.device, tensor.dtype) == (CPU, (0, 16, 1))
        assert (tensor.shape, tensor.strides, tensor.byte_offset) == ((3, 5), (32, 2), 0)
        assert tensor.first_bytes(4) == bytes((10, 11, 12, 13))
        tensor.delete()
        old = dlpack.take(array.__dlpack__())
        assert (old.version, old.shape, old.strides) == (None, (3, 5), (32, 2))
        assert old.first_bytes(2) == bytes((10, 11))
        old.delete()
        bfloat = dlpack.take(view.array("bfloat16", 4).__dlpack__(max_version=(1, 0)))
        assert bfloat.dtype == (4, 16, 1)
        bfloat.delete()


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (2, 5)])
def test_versions(xe_mock: ze_ipc.Device, max_version: tuple[int, int] | None) -> None:
    with a_view(xe_mock) as view:
        tensor = dlpack.take(view.__dlpack__(max_version=max_version))
        is_new = max_version is not None and max_version >= (1, 0)
        assert tensor.version == ((1, 0) if is_new else None)
        tensor.delete()
        # One that nobody takes is given back by its capsule.
        view.__dlpack__(max_version=max_version)


def test_read_only_needs_a_version(xe_mock: ze_ipc.Device) -> None:
    with a_view(xe_mock, "ro") as view:
        tensor = dlpack.take(view.__dlpack__(max_version=(1, 0)))
        assert tensor.flags == READ_ONLY
        tensor.delete()
        with pytest.raises(BufferError, match="read-only"):
            view.__dlpack__()
        copied = dlpack.take(view.__dlpack__(copy=True))
        copied.delete()


def test_copies_and_devices(xe_mock: ze_ipc.Device) -> None:
    with a_view(xe_mock) as view:
        array = view.array("uint8", (2, 4), (PAGE, -1), 3)
        copied = dlpack.take(array.__dlpack__(copy=True, max_version=(1, 0)))
        assert (copied.flags, copied.device, copied.strides) == (COPIED, CPU, (PAGE, -1))
        view.device.fill(view.ptr, 0, view.size)
        assert copied.first_bytes(1) == b"\x03"
        copied.delete()
        same = dlpack.take(array.__dlpack__(copy=False, dl_device=CPU))
        assert same.first_bytes(1) == b"\0"
        same.delete()
        for options in ({"dl_device": (2, 0)}, {"dl_device": ONE_API}, {"stream": 1}):
            with pytest.raises(BufferError):
                array.__dlpack__(**options)


def test_given_back_by_a_thread_after_the_view(xe_mock: ze_ipc.Device) -> None:
    with a_view(xe_mock) as view:
        tensors = [dlpack.take(view.__dlpack__(max_version=(1, 0))) for _ in range(8)]
    assert view.closed
    assert tensors[0].first_bytes(4) == bytes((0, 1, 2, 3))
    threads = [threading.Thread(target=tensor.delete) for tensor in tensors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_on_the_gpu(monkeypatch: pytest.MonkeyPatch, xe_mock: ze_ipc.Device) -> None:
    """As where the range was opened in a context of SYCL: GPU addresses, pinned while they live."""
    with a_view(xe_mock) as view:
        monkeypatch.setattr(XeBackend, "sycl_place", 3)
        array = view.array("float32", (16,), offset=64)
        assert view.__dlpack_device__() == array.__dlpack_device__() == ONE_API
        tensor = dlpack.take(array.__dlpack__(max_version=(1, 0), stream=object()))
        assert (tensor.device, tensor.data) == (ONE_API, view.ptr + 64)
        other = dlpack.take(view.__dlpack__(dl_device=ONE_API))
        for owner in (view, xe_mock):
            with pytest.raises(BufferError, match="2 arrays"):
                owner.close()
            assert not owner.closed
        tensor.delete()
        other.delete()
        for options in ({"copy": True}, {"dl_device": (14, 0)}):
            with pytest.raises(BufferError):
                array.__dlpack__(**options)
        by_cpu = dlpack.take(array.__dlpack__(dl_device=CPU))
        assert (by_cpu.device, by_cpu.first_bytes(2)) == (CPU, bytes((64, 65)))
        by_cpu.delete()
        view.close()


def test_where_the_cpu_cannot_reach(
    monkeypatch: pytest.MonkeyPatch, xe_mock: ze_ipc.Device
) -> None:
    def no_window(*_: object) -> None:
        raise BufferError("a small PCI BAR")

    with a_view(xe_mock) as view:
        monkeypatch.setattr(XeBackend, "cpu_map", no_window)
        for options in ({}, {"copy": False}):
            with pytest.raises(BufferError, match="small PCI BAR"):
                view.__dlpack__(**options)
        tensor = dlpack.take(view.__dlpack__(copy=True, max_version=(1, 0)))
        assert (tensor.flags, tensor.first_bytes(3)) == (COPIED, bytes((0, 1, 2)))
        tensor.delete()
        # On the GPU it is not what was asked for first, so that a copy is made unless forbidden.
        monkeypatch.setattr(XeBackend, "sycl_place", 3)
        tensor = dlpack.take(view.__dlpack__(dl_device=CPU, max_version=(1, 0)))
        assert tensor.flags == COPIED
        tensor.delete()
        with pytest.raises(BufferError):
            view.__dlpack__(dl_device=CPU, copy=False)


def test_sycl_needs_a_queue(xe_mock: ze_ipc.Device) -> None:
    with a_view(xe_mock) as view:
        assert not hasattr(view, "__sycl_usm_array_interface__")
        assert not hasattr(view.array("float32"), "__sycl_usm_array_interface__")
        view._sycl = "the queue"
        array = view.array("float32", (4, 8), (64, 4), 128)
        assert array.__sycl_usm_array_interface__ == {
            "data": (view.ptr + 128, False),
            "shape": (4, 8),
            "strides": (16, 1),
            "typestr": "<f4",
            "version": 1,
            "offset": 0,
            "syclobj": "the queue",
        }
        assert view.__sycl_usm_array_interface__["typestr"] == "|u1"
        assert view.array("float32", (4, 8)).__sycl_usm_array_interface__["strides"] is None
        for bad in (view.array("bfloat16"), view.array("float32", (2,), (6,))):
            assert not hasattr(bad, "__sycl_usm_array_interface__")
