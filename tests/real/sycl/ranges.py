"""A range of another process in SYCL's own context: opened there, wrapped, copied by SYCL.

Usage: ranges.py [--sabotage]. Exit: 0 right, 3 wrong bytes.
"""

from __future__ import annotations

import ctypes
import sys

import dpctl
import dpctl.memory as memory
import numpy as np

import ze_ipc
from helpers import native_way, ranges
from ze_ipc.peer_process import Peer

PAGE = 65536
OBJECTS = 4
STEP = 8192
"""The longest copy that needs no kernel with either adapter."""


def native_context(queue: dpctl.SyclQueue) -> int:
    """SYCL's ze_context_handle_t; by its mangled name, as dpctl gives no way to it."""
    get = ctypes.CDLL("libsycl.so.9")._ZNK4sycl3_V17context9getNativeEv
    get.restype, get.argtypes = ctypes.c_uint64, [ctypes.c_void_p]
    return int(get(queue.sycl_context.addressof_ref()))


class Part:
    """A piece of the range, as dpctl takes foreign memory."""

    def __init__(self, ptr: int, size: int, queue: dpctl.SyclQueue) -> None:
        self.__sycl_usm_array_interface__ = {
            "data": (ptr, False),
            "shape": (size,),
            "strides": None,
            "typestr": "|u1",
            "version": 1,
            "offset": 0,
            "syclobj": queue,
        }


def wrong(queue: dpctl.SyclQueue, view: ze_ipc.ImportedRange, answer: np.ndarray) -> int:
    """Bytes of the view that are not the exporter's; then the answer is written over them."""
    bad = 0
    for at in range(0, view.size, STEP):
        block = memory.as_usm_memory(Part(view.ptr + at, STEP, queue))
        assert block.get_usm_type() == "device", block.get_usm_type()
        found = np.zeros(STEP, np.uint8)
        if "--sabotage" not in sys.argv:
            block.copy_to_host(found)
        bad += int(np.count_nonzero(found != b"abcd"[at // PAGE]))
        # Within the device, by SYCL: from its own memory into the range.
        own = memory.MemoryUSMDevice(STEP, queue=queue)
        own.copy_from_host(answer[at : at + STEP])
        block.copy_from_device(own)
    return bad


def main() -> int:
    queue = dpctl.SyclQueue("level_zero:gpu")
    answer = np.random.default_rng(4).integers(1, 255, OBJECTS * PAGE, dtype=np.uint8)
    with Peer() as exporter, ze_ipc.open_device("level_zero") as device:
        exporter.call(ranges.open_device, 0, "level_zero")
        handle = exporter.call(ranges.export_range, OBJECTS, PAGE, b"abcd")
        with device.open_ipc_handle(handle, context=native_context(queue)) as view:
            bad = wrong(queue, view, answer)
        back = exporter.call(native_way.read_exported, 0, OBJECTS * PAGE)
        bad += int(np.count_nonzero(np.frombuffer(back, np.uint8) != answer))
        exporter.call(ranges.close_all)
    print(f"{bad} of {2 * OBJECTS * PAGE} bytes wrong")
    return 3 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
