"""The tracer and the marks of the traced side: compiled once, called by ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
UAPI = HERE.parents[1] / "ioctl"
LIMIT = 120.0
"""Seconds that the compiler may take."""

DEVICE_CALL = -1
MARK_PAUSE, MARK_RESUME, MARK_END = 3, 4, 5
FAIL, KILL_BEFORE, KILL_AFTER, FAIL_AFTER = 1, 2, 3, 4
"""enum action."""

_LOG_SIZE = 1 << 16


class _Call(ctypes.Structure):
    _fields_ = [
        ("thread", ctypes.c_int32),
        ("number", ctypes.c_int32),
        ("detail", ctypes.c_uint32),
        ("inside", ctypes.c_int32),
    ]


class _Plan(ctypes.Structure):
    _fields_ = [
        ("call", _Call),
        ("occurrence", ctypes.c_uint64),
        ("action", ctypes.c_int32),
        ("error", ctypes.c_int32),
    ]


class _Outcome(ctypes.Structure):
    _fields_ = [
        ("calls", ctypes.c_uint64),
        ("fired", ctypes.c_int32),
        ("timed_out", ctypes.c_int32),
        ("status", ctypes.c_int32),
        ("stranger", ctypes.c_int32),
        ("stuck", _Call),
    ]


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """What one thread asked of the kernel, or of the device."""

    thread: int
    """0 is the main thread; the others in the order in which they came."""
    number: int
    """Of the system call, or DEVICE_CALL."""
    detail: int
    """The request, operation or option, where one number stands for many."""
    inside: int
    """1: made by the device itself, while it served an ioctl."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The call to interfere with: the ``occurrence``-th (from 0) that is equal to ``call``."""

    call: Call
    occurrence: int
    action: int
    error: int = 0


@dataclass(frozen=True, slots=True)
class Traced:
    """How a run ended."""

    fired: bool
    timed_out: bool
    status: int
    """As waitpid() gives it."""
    stranger: int
    """Another task that ended meanwhile, or 0: a child of ours, or a thread that was never seen."""
    stuck: Call
    """On time-out: the main thread's last call."""
    calls: list[Call]


def build(directory: Path) -> Path:
    """Compile the library there."""
    output = directory / "libfaults.so"
    command = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC"]
    command += [f"-I{UAPI}", "-shared", "-o", str(output)]
    command += [str(HERE / "tracer.c"), str(HERE / "marks.c"), "-pthread"]
    subprocess.run(command, check=True, timeout=LIMIT)
    return output


@cache
def call_numbers() -> dict[int, str]:
    """Names of this machine's system calls, as its C library's header has them."""
    text = subprocess.run(
        ["cc", "-E", "-dM", "-x", "c", "-"],
        input="#include <sys/syscall.h>\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT,
    ).stdout
    numbers = {}
    for name, value in re.findall(r"#define __NR_(\w+) (\d+)", text):
        numbers[int(value)] = name
    return numbers


class Native:
    """The compiled library in this process."""

    def __init__(self, path: str) -> None:
        self._lib = ctypes.CDLL(path)
        # Without giving up the GIL: what is marked off must be exactly what lies between.
        self._marks = ctypes.PyDLL(path)
        self._marks.mark.argtypes = [ctypes.c_int, ctypes.c_ulong]
        self._marks.mark.restype = ctypes.c_long
        self._lib.marked_ops.argtypes = [ctypes.c_void_p]
        self._lib.marked_ops.restype = ctypes.c_void_p
        self._lib.trace.argtypes = [
            *(ctypes.c_int, ctypes.POINTER(_Plan), ctypes.POINTER(_Call)),
            *(ctypes.c_size_t, ctypes.c_double, ctypes.POINTER(_Outcome)),
        ]
        self._log = (_Call * _LOG_SIZE)()

    # The traced side.

    def trace_me(self) -> None:
        """Stop until the parent's trace() goes on."""
        if rc := self._lib.trace_me():
            raise OSError(-rc, os.strerror(-rc))

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What this thread does in the block is not part of the job."""
        self._marks.mark(MARK_PAUSE, 0)
        try:
            yield
        finally:
            self._marks.mark(MARK_RESUME, 0)

    def end(self) -> None:
        """The job is done: from now on nothing is traced."""
        self._marks.mark(MARK_END, 0)

    def marked_ops(self, ops: int) -> int:
        """The address of a ``struct xe_ops`` over that one, with marks around its ioctls."""
        address = self._lib.marked_ops(ops)
        assert address is not None
        return int(address)

    # The tracing side.

    def trace(self, pid: int, plan: Plan | None, seconds: float) -> Traced:
        """Follow a child that called trace_me() until it has ended; killed after ``seconds``."""
        wanted = _Plan()
        if plan is not None:
            call = plan.call
            wanted = _Plan(
                _Call(call.thread, call.number, call.detail, call.inside),
                *(plan.occurrence, plan.action, plan.error),
            )
        outcome = _Outcome()
        rc = self._lib.trace(pid, wanted, self._log, _LOG_SIZE, seconds, outcome)
        if rc:
            raise OSError(-rc, f"{os.strerror(-rc)}: ptrace is not permitted here")
        seen = min(outcome.calls, _LOG_SIZE) if plan is None else 0
        return Traced(
            bool(outcome.fired),
            bool(outcome.timed_out),
            outcome.status,
            outcome.stranger,
            _call(outcome.stuck),
            [_call(self._log[index]) for index in range(seen)],
        )


def _call(raw: _Call) -> Call:
    return Call(raw.thread, raw.number, raw.detail, raw.inside)


def show_errno(number: int) -> str:
    return errno.errorcode.get(number, str(number))
