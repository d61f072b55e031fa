"""What a process of the campaign found out about itself, and what of it is wrong."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ze_ipc
from ze_ipc import leaks
from ze_ipc.mock import MockStats

POOL_THREADS = "ze_ipc-serve"
"""Threads of the broker's pool: they end by themselves when they had no work for a while."""


@dataclass(slots=True)
class Report:
    """Collected in one process; crosses a pipe."""

    steps: list[str] = field(default_factory=list)
    """What was done and how it ended, in order."""
    wrong: list[str] = field(default_factory=list)
    """Each of these fails the case."""

    def good(self, step: str) -> None:
        self.steps.append(f"{step}: ok")

    def failed(self, step: str, error: BaseException) -> None:
        """A call that raised: it may, if the error is one that the contract knows."""
        self.steps.append(f"{step}: {type(error).__name__} {error}")
        if (complaint := breach(error)) is not None:
            where = "".join(traceback.format_exception(error)[-3:])
            self.wrong.append(f"{step}: {complaint}: {error!r}\n{where}")


def breach(error: BaseException) -> str | None:
    """What the contract does not know about an error; None: it is one of its errors."""
    if isinstance(error, MemoryError):
        return None  # as good as OutOfHostMemory: it is the interpreter that has none
    if not isinstance(error, ze_ipc.ZeIpcError):
        return "not an error of the contract"
    if not error.hint:
        return "an error without a hint"
    return None


@dataclass(frozen=True, slots=True)
class Holdings:
    """Everything that a process holds at one moment."""

    snapshot: leaks.Snapshot
    device: MockStats | None
    rows: int

    @classmethod
    def take(cls, device: ze_ipc.Device | None = None, mock: Any = None) -> Holdings:
        return cls(
            leaks.take(),
            None if mock is None else mock.stats(),
            0 if device is None else len(device._table),
        )

    def new_in(self, after: Holdings) -> list[str]:
        """What ``after`` holds more."""
        pool = {f"{t.native_id}" for t in threading.enumerate() if t.name == POOL_THREADS}
        found = [
            line
            for line in self.snapshot.new_in(after.snapshot)
            if line.removeprefix("thread ") not in pool
        ]
        if self.device is not None and self.device != after.device:
            found.append(f"device {self.device} -> {after.device}")
        if self.rows != after.rows:
            found.append(f"mapping table rows {self.rows} -> {after.rows}")
        return found


def left_behind(
    before: Holdings,
    device: ze_ipc.Device | None = None,
    mock: Any = None,
    ignore: str = "the process",
) -> list[str]:
    """What is held now and was not before; threads and services may take a moment to end.

    ``ignore``: how lines begin that are of no interest. The survivors ignore socket files, for
    those of other exporters come and go; the worker looks after them.
    """
    warned = leaks.collect()
    deadline = time.monotonic() + leaks.SETTLE_SECONDS
    while True:
        after = Holdings.take(device, mock)
        left = [line for line in before.new_in(after) if not line.startswith(ignore)]
        if not left or time.monotonic() > deadline:
            return warned + left
        time.sleep(0.01)


@contextmanager
def watched(report: Report) -> Iterator[None]:
    """What nobody catches, in any thread, and what the library did not expect, is wrong too."""

    def unraisable(hook: Any) -> None:
        report.wrong.append(f"unraisable: {hook.exc_value!r} in {hook.object!r}")

    def in_thread(hook: Any) -> None:
        lines = "".join(traceback.format_exception(hook.exc_value)[-4:])
        report.wrong.append(f"a thread ended by {hook.exc_value!r}\n{lines}")

    class Unexpected(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += "\n" + "".join(traceback.format_exception(record.exc_info[1])[-4:])
            report.wrong.append(f"logged as an error: {text}")

    handler = Unexpected(logging.ERROR)
    logger = logging.getLogger("ze_ipc")
    logger.addHandler(handler)
    sys.unraisablehook, threading.excepthook = unraisable, in_thread
    try:
        yield
    finally:
        logger.removeHandler(handler)
        sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__


def heap_bytes() -> int:
    """What malloc() and the interpreter hold; for growth over many cases."""

    class Mallinfo2(ctypes.Structure):
        _fields_ = [
            (name, ctypes.c_size_t) for name in ("a", "b", "c", "d", "e", "f", "g", "uordblks")
        ] + [("h", ctypes.c_size_t), ("i", ctypes.c_size_t)]

    gc.collect()
    function = ctypes.CDLL(None).mallinfo2
    function.restype = Mallinfo2
    return int(function().uordblks) + 64 * sys.getallocatedblocks()
