"""What the processes of the stress tests do; ``state`` lives in the process that runs them."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import ze_ipc
from ze_ipc import leaks
from ze_ipc.mock import EVERY, MockDevice

PAGE = 4096
SECONDS = 20.0

State = dict[str, Any]


def begin(state: State) -> None:
    """Open the device; everything else hangs on names from then on."""
    state["before"] = leaks.take()
    state["device"] = ze_ipc.open_device("mock")


def end(state: State) -> list[str]:
    """Close the device with all that is open; what is left."""
    device = state.pop("device", None)
    before = state.pop("before", None)
    if device is None:
        return []
    device.close()
    state.clear()
    return leaks.left_behind(before)


# ---- one step each, for the state machine


def reserve(state: State, name: str, pages: int) -> None:
    state[name] = state["device"].reserve(pages * PAGE)


def map_pages(
    state: State, name: str, at: int, memory: str, size: int, offset: int, pages: int, access: str
) -> None:
    if memory not in state:
        state[memory] = state["device"].physical_memory(size * PAGE)
    state[name].map(
        state[memory], at=at * PAGE, offset=offset * PAGE, size=pages * PAGE, access=access
    )


def unmap_pages(state: State, name: str, at: int, pages: int) -> None:
    state[name].unmap(at * PAGE, pages * PAGE)


def export(state: State, name: str, target: str, offset: int, size: int) -> bytes:
    handle = state["device"].get_ipc_handle(state[target].ptr + offset, size)
    state[name] = handle
    return bytes(handle)


def open_view(state: State, name: str, handle: bytes) -> int:
    view = state[name] = state["device"].open_ipc_handle(handle, timeout=SECONDS)
    return int(view.size)


def close(state: State, name: str) -> None:
    state.pop(name).close()


def read(state: State, target: str, offset: int, size: int) -> bytes:
    data: bytes = state["device"].read(state[target].ptr + offset, size)
    return data


def write(state: State, target: str, offset: int, data: bytes) -> None:
    state["device"].write(state[target].ptr + offset, data)


def copy(state: State, target: str, at: int, source: str, offset: int, size: int) -> None:
    state["device"].copy(state[target].ptr + at, state[source].ptr + offset, size)


def fill(state: State, target: str, offset: int, value: int, size: int) -> None:
    state["device"].fill(state[target].ptr + offset, value, size)


# ---- many of them


def make_range(state: State, objects: int) -> None:
    """A range of objects, each filled with its own number."""
    reservation = state["range"] = state["device"].reserve(objects * PAGE)
    for index in range(objects):
        with state["device"].physical_memory(PAGE) as memory:
            reservation.map(memory, at=index * PAGE)
    state["device"].write(reservation.ptr, content(objects))


def content(objects: int) -> bytes:
    """The bytes of make_range()."""
    return b"".join(bytes([1 + index % 255]) * PAGE for index in range(objects))


def export_range(state: State) -> bytes:
    handle = state["handle"] = state["device"].get_ipc_handle(
        state["range"].ptr, state["range"].size
    )
    return bytes(handle)


def importers(state: State) -> list[int]:
    """Pids of who opened the handle and lives."""
    return [importer.pid for importer in state["handle"].importers()]


def delay(state: State, ioctl: str, seconds: float) -> None:
    """Make every such ioctl late."""
    MockDevice(0).delay(ioctl, EVERY, seconds)


def usage(state: State) -> tuple[int, int, int]:
    """(file descriptors, threads, bytes of resident memory that are this process's own)."""
    import gc

    gc.collect()
    fds = len(list(Path("/proc/self/fd").iterdir()))
    pages = Path("/proc/self/statm").read_text().split()
    resident = (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")
    return fds, len(list(Path("/proc/self/task").iterdir())), resident


def open_and_close(state: State, handle: bytes, times: int, wanted: bytes) -> None:
    """Open a handle, compare now and then, close."""
    device = state["device"]
    for turn in range(times):
        with device.open_ipc_handle(handle, timeout=SECONDS) as view:
            if turn % 64 == 0 and device.read(view.ptr, view.size) != wanted:
                raise AssertionError(f"wrong bytes in turn {turn}")


def race(state: State, threads: int, turns: int, objects: int) -> int:
    """Threads that export windows of one range and open them; how many opens."""
    device, reservation = state["device"], state["range"]
    whole = content(objects)
    failures: list[BaseException] = []
    opened: list[int] = []

    def work(number: int) -> None:
        try:
            for turn in range(turns):
                start = (number * 977 + turn * 131) % (len(whole) - 2)
                size = 1 + (number * 7919 + turn * 613) % (len(whole) - start - 1)
                handle = device.get_ipc_handle(reservation.ptr + start, size)
                with handle, device.open_ipc_handle(handle, timeout=SECONDS) as view:
                    if turn % 16 == 0 and device.read(view.ptr, size) != whole[start:][:size]:
                        raise AssertionError("wrong bytes")
            opened.append(turns)
        except BaseException as error:
            failures.append(error)

    _run_all([threading.Thread(target=work, args=(number,)) for number in range(threads)])
    if failures:
        raise failures[0]
    return sum(opened)


def _run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
