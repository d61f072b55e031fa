"""Ranges in the context of a SYCL queue, by dpctl: opened there, they are SYCL's own USM memory.

    queue = dpctl.SyclQueue("level_zero:gpu")
    with ze_ipc.open_device("level_zero") as device:
        view = ze_ipc.interop.sycl.open_ipc_handle(device, handle, queue)
        block = dpctl.memory.as_usm_memory(view.array("float32", (1024,)))

A GPU address is right in one Level Zero context only, so a range that open_ipc_handle() maps in a
context of ours is of no use to SYCL. Memory that was taken from ``view.array(...)`` keeps the view
from being closed (BufferError) until it is deleted; so does a DLPack capsule (kDLOneAPI).
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ze_ipc.errors import UnsupportedFeature

if TYPE_CHECKING:
    from ze_ipc.device import Device
    from ze_ipc.imported_range import ImportedRange
    from ze_ipc.range_handle import RangeHandle

_GET_NATIVE = "_ZNK4sycl3_V17context9getNativeEv"
"""sycl::context::getNative() const, which is a plain call: no header of dpctl gives a way to it."""


def open_ipc_handle(
    device: Device,
    data: bytes | bytearray | memoryview | RangeHandle,
    queue: Any,
    timeout: float = 10.0,
    reserve: int = 0,
) -> ImportedRange:
    """As Device.open_ipc_handle(), for a dpctl.SyclQueue: its ``__sycl_usm_array_interface__`` and
    DLPack are of that queue's context.

    The device is of backend level_zero, and the queue's. UnsupportedFeature where the queue is not
    of Level Zero. The view must be closed before the queue's context goes.
    """
    view = device.open_ipc_handle(data, timeout, native_context(queue), reserve)
    view._sycl = queue
    return view


def native_context(queue: Any) -> int:
    """The ze_context_handle_t of a dpctl.SyclQueue, which stays SYCL's."""
    backend = str(queue.backend).rpartition(".")[2]
    if backend != "level_zero":
        raise UnsupportedFeature(
            f"the queue is of SYCL's backend {backend}",
            call="native_context",
            hint='make it by dpctl.SyclQueue("level_zero:gpu")',
        )
    get = getattr(ctypes.CDLL(_libsycl()), _GET_NATIVE)
    get.restype, get.argtypes = ctypes.c_uint64, [ctypes.c_void_p]
    return int(get(queue.sycl_context.addressof_ref()))


def _libsycl() -> str:
    """The library that dpctl has loaded; another one would know nothing of its queue."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path and Path(path).name.startswith("libsycl.so"):
            return "/" + path
    raise UnsupportedFeature(
        "no libsycl is loaded", call="native_context", hint="import dpctl, and pass its SyclQueue"
    )
