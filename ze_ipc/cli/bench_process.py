"""One of the two processes of our half of ``ze-ipc bench``; commands and answers are JSON lines.

Started as ``python -m ze_ipc.cli.bench_process ROLE BACKEND DEVICE BUSY``. ROLE is ``export`` or
``import``; BUSY 1 keeps one Python thread of the process busy all the time.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from typing import Any

import psutil

from ze_ipc.device import Device
from ze_ipc.open_device import open_device
from ze_ipc.range_handle import RangeHandle
from ze_ipc.reservation import Reservation


class Exporter:
    """Makes a range of objects and exports it, again and again."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._reservation: Reservation | None = None
        self._handle: RangeHandle | None = None

    def objects(self, count: int, size: int) -> dict[str, Any]:
        """Replace the range by one of ``count`` objects of ``size`` bytes."""
        if self._reservation is not None:
            self._reservation.close()
        self._reservation = self._device.reserve(count * size)
        for index in range(count):
            with self._device.physical_memory(size) as memory:
                self._reservation.map(memory, at=index * size)
        return {}

    def share(self) -> dict[str, Any]:
        """Export the whole range."""
        assert self._reservation is not None
        begin = time.perf_counter()
        self._handle = self._device.get_ipc_handle(self._reservation.ptr, self._reservation.size)
        return {"seconds": time.perf_counter() - begin, "handle": self._handle.hex()}

    def put(self) -> dict[str, Any]:
        """Give the handle back."""
        assert self._handle is not None
        self._handle.close()
        return {}


class Importer:
    """Opens what the exporter shares."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def open(self, handle: str, view: bool) -> dict[str, Any]:
        """Open a handle and close it again; with ``view`` map it for the CPU in between."""
        raw = bytes.fromhex(handle)
        begin = time.perf_counter()
        with self._device.open_ipc_handle(raw, timeout=300.0) as opened:
            seconds = time.perf_counter() - begin
            viewing = 0.0
            if view:
                begin = time.perf_counter()
                memoryview(opened).release()
                viewing = time.perf_counter() - begin
            steps = opened.timings
            return {
                "seconds": seconds,
                "transfer": steps.connecting + steps.describing + steps.receiving,
                "import": steps.importing,
                "bind": steps.binding,
                "view": viewing,
            }


def _usage() -> dict[str, Any]:
    """What this process has used so far; memory is the peak in bytes."""
    process = psutil.Process()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak": peak, "rss": process.memory_info().rss, "fds": process.num_fds()}


def _stay_busy() -> None:
    number = 0
    while True:
        number += 1


def main() -> None:
    """Answer commands until standard input ends."""
    role, backend, device_name, busy = sys.argv[1:]
    if busy == "1":
        threading.Thread(target=_stay_busy, daemon=True).start()
    selector = int(device_name) if device_name.isdigit() else device_name
    with open_device(backend, selector) as device:  # type: ignore[arg-type]
        worker = Exporter(device) if role == "export" else Importer(device)
        for line in sys.stdin:
            name, arguments = json.loads(line)
            answer = _usage() if name == "usage" else getattr(worker, name)(*arguments)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
