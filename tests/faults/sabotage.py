"""Wrong things to do in the middle of a job, so that the checker can be seen red."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

_kept: list[Any] = []


def _leak_fd() -> None:
    _kept.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))


def _leak_thread() -> None:
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    _kept.append(thread)


def _leak_object() -> None:
    import ze_ipc

    device = ze_ipc.open_device("mock")
    _kept.append((device, device.physical_memory(4096)))


def _hang() -> None:
    time.sleep(3600)


def _raise_bare() -> None:
    raise OSError(5, "bare")


def _exit() -> None:
    os._exit(7)


def _scribble() -> None:
    import faults.jobs
    import faults.scenes

    faults.jobs.pattern = lambda objects: bytes(objects * faults.scenes.OBJECT_SIZE)  # type: ignore[attr-defined]


VERBS: dict[str, Callable[[], None]] = {
    "leak an fd": _leak_fd,
    "leak a thread": _leak_thread,
    "leak an object": _leak_object,
    "hang": _hang,
    "raise a bare error": _raise_bare,
    "exit": _exit,
    "see wrong bytes": _scribble,
}
