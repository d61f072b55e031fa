"""What a process does that has a thread which computes: functions for a Peer."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable

from ze_ipc.peer_process import State

INTERVAL = 0.25
"""Seconds after which the thread that computes gives the GIL back."""


def seconds_beside_a_busy_thread(state: State, handle: bytes) -> dict[str, float]:
    """How long open, read and close take beside a thread that keeps the GIL for INTERVAL each time
    that it gets it: medians, but of open, where the exporter may be slow on a busy machine, the
    shortest of twelve times.
    """
    device = state["device"]
    times: dict[str, list[float]] = {"open": [], "read": [], "close": []}

    def timed(name: str, call: Callable[[], object]) -> object:
        begin = time.perf_counter()
        result = call()
        times[name].append(time.perf_counter() - begin)
        return result

    device.open_ipc_handle(handle).close()
    over = threading.Event()
    before = sys.getswitchinterval()
    sys.setswitchinterval(INTERVAL)
    computing = threading.Thread(target=_compute, args=(over,))
    computing.start()
    try:
        for _ in range(12):
            view = timed("open", lambda: device.open_ipc_handle(handle))
            timed("read", lambda: device.read(view.ptr, 5))  # type: ignore[attr-defined]  # noqa: B023
            timed("close", view.close)  # type: ignore[attr-defined]
    finally:
        over.set()
        computing.join()
        sys.setswitchinterval(before)
    return {
        name: min(seconds) if name == "open" else statistics.median(seconds)
        for name, seconds in times.items()
    }


def _compute(over: threading.Event) -> None:
    number = 0
    while not over.is_set():
        for _ in range(1000):
            number += 1
