"""A range of another process in SYCL's own context: opened there, wrapped, copied by SYCL.

Usage: ranges.py [--sabotage]. Exit: 0 right, 3 wrong bytes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import dpctl
import dpctl.memory as memory
import numpy as np

import ze_ipc
from helpers import native_way, ranges
from ze_ipc.interop import sycl
from ze_ipc.peer_process import Peer

PAGE = 65536
OBJECTS = 4
STEP = 8192
"""The longest copy that needs no kernel with either adapter."""


def wrong(queue: dpctl.SyclQueue, view: ze_ipc.ImportedRange, answer: np.ndarray) -> int:
    """Bytes of the view that are not the exporter's; then the answer is written over them."""
    bad = 0
    for at in range(0, view.size, STEP):
        block = memory.as_usm_memory(view.array("uint8", (STEP,), offset=at))
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


def check_lifetime(view: ze_ipc.ImportedRange) -> None:
    """What SYCL or a DLPack consumer has taken keeps the range open."""
    one_api = 14
    assert view.__dlpack_device__() == (one_api, 0), view.__dlpack_device__()
    taken: list[object] = [
        memory.as_usm_memory(view.array("uint16", (4,), (16,), 64)),
        view.array("float32").__dlpack__(max_version=(1, 0)),
    ]
    assert taken[0].nbytes >= 8  # type: ignore[attr-defined]
    while taken:
        try:
            view.close()
        except BufferError:
            taken.pop()
        else:
            raise AssertionError("closed under SYCL's feet")


def documented(handle: bytes) -> bytes:
    """The first bytes of the range, as the page of dpctl in the documentation reads them."""
    page = Path(__file__).with_name("dpctl.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {"handle": handle}
    exec(compile(example, "dpctl.md", "exec"), names)
    values = names["values"]
    assert isinstance(values, bytes)
    return values


def main() -> int:
    queue = dpctl.SyclQueue("level_zero:gpu")
    answer = np.random.default_rng(4).integers(1, 255, OBJECTS * PAGE, dtype=np.uint8)
    with Peer() as exporter, ze_ipc.open_device("level_zero") as device:
        exporter.call(ranges.open_device, 0, "level_zero")
        handle = exporter.call(ranges.export_range, OBJECTS, PAGE, b"abcd")
        with sycl.open_ipc_handle(device, handle, queue) as view:
            bad = wrong(queue, view, answer)
            check_lifetime(view)
        values = documented(handle)
        assert len(values) == 4096, len(values)
        bad += int(np.count_nonzero(np.frombuffer(values, np.uint8) != answer[: len(values)]))
        back = exporter.call(native_way.read_exported, 0, OBJECTS * PAGE)
        bad += int(np.count_nonzero(np.frombuffer(back, np.uint8) != answer))
        exporter.call(ranges.close_all)
    print(f"{bad} of {2 * OBJECTS * PAGE} bytes wrong")
    return 3 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
