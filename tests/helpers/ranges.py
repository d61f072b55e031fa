"""What another process does in the range tests: functions for a Peer; its devices and views live in
``state``.
"""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable
from typing import Any, Literal, cast

import ze_ipc
from ze_ipc.peer_process import State


def pattern(size: int, seed: int) -> bytes:
    """Bytes that tell a wrong place from the right one."""
    return random.Random(seed).randbytes(size)


LARGE = 2 << 20
"""Level Zero: sizes from here on are multiples of it."""


def whole(device: ze_ipc.Device, size: int) -> int:
    """The smallest size of a reservation that has room for ``size`` bytes."""
    page = LARGE if device.backend == "level_zero" and size >= LARGE else device.page_size
    return -(-size // page) * page


def limit_fds(state: State, number: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))


def second_device() -> ze_ipc.Device:
    return ze_ipc.open_device(cast(Any, os.environ.get("ZE_IPC_TEST_BACKEND", "mock")), 1)


def open_device(
    state: State, device: int | str = 0, backend: Literal["level_zero", "xe", "mock"] | None = None
) -> None:
    wanted: Any = backend or os.environ.get("ZE_IPC_TEST_BACKEND", "mock")
    state["device"] = ze_ipc.open_device(wanted, device)


def open_view(
    state: State, handle: bytes, timeout: float = 20.0, name: str = "view"
) -> tuple[int, int]:
    view = state[name] = state["device"].open_ipc_handle(handle, timeout=timeout)
    return view.ptr, view.size


def read_view(state: State, offset: int = 0, size: int | None = None, name: str = "view") -> bytes:
    view = state[name]
    data: bytes = state["device"].read(
        view.ptr + offset, view.size - offset if size is None else size
    )
    return data


def open_growing(state: State, handle: bytes, reserve: int) -> tuple[int, int]:
    view = state["view"] = state["device"].open_ipc_handle(handle, reserve=reserve)
    return view.ptr, view.size


def follow(state: State, handle: bytes) -> tuple[int, int]:
    view = state["view"].extend(handle)
    return view.ptr, view.size


def write_view(state: State, offset: int, data: bytes, name: str = "view") -> None:
    state["device"].write(state[name].ptr + offset, data)


def address_range(state: State, offset: int = 0, name: str = "view") -> tuple[bool, int]:
    view = state[name]
    base, size = state["device"].address_range(view.ptr + offset)
    return base == view.ptr, size


def reexport(state: State, offset: int = 0, size: int | None = None) -> bytes:
    view = state["view"]
    handle = state["handle"] = state["device"].get_ipc_handle(
        view.ptr + offset, view.size - offset if size is None else size
    )
    return bytes(handle)


def export_range(state: State, objects: int, size: int, pattern: bytes) -> bytes:
    """Make a range of objects, each filled with one byte of the pattern in turn, and export it."""
    device = state["device"]
    reservation = state["reservation"] = device.reserve(whole(device, objects * size))
    for index in range(objects):
        with device.physical_memory(size) as memory:
            reservation.map(memory, at=index * size)
    device.write(
        reservation.ptr, b"".join(pattern[i % len(pattern) :][:1] * size for i in range(objects))
    )
    state["handle"] = device.get_ipc_handle(reservation.ptr, objects * size)
    return bytes(state["handle"])


def put_handle(state: State) -> None:
    state.pop("handle").close()


def close_reservation(state: State) -> None:
    state.pop("reservation").close()


def close_view(state: State, name: str = "view") -> None:
    state.pop(name).close()


def close_all(state: State) -> None:
    for name in ("view", "handle", "reservation", "device"):
        owner: Any = state.pop(name, None)
        if owner is not None:
            owner.close()


def export_stamped(state: State, objects: int, size: int) -> bytes:
    """A sparse range of many objects; every hundredth is stamped with its number."""
    device = state["device"]
    reservation = state["reservation"] = device.reserve(whole(device, objects * size))
    for index in range(objects):
        with device.physical_memory(size) as memory:
            reservation.map(memory, at=index * size)
    for index in range(0, objects, 100):
        device.write(reservation.ptr + index * size + 8, index.to_bytes(8, "little"))
    state["handle"] = device.get_ipc_handle(reservation.ptr, objects * size)
    return bytes(state["handle"])


def wrong_stamps(state: State, objects: int, size: int) -> list[int]:
    """Numbers of the stamped objects that do not say their number in the view."""
    device, view = state["device"], state["view"]
    return [
        index
        for index in range(0, objects, 100)
        if device.read(view.ptr + index * size + 8, 8) != index.to_bytes(8, "little")
    ]


def gpu_copy(state: State, dst: int, src: int, size: int) -> None:
    """Copy within the view on a copy engine; offsets."""
    view = state["view"]
    state["device"].copy(view.ptr + dst, view.ptr + src, size)


def cpu_view(state: State, at: int, size: int, data: bytes = b"", name: str = "view") -> bytes:
    """Bytes of the view as the CPU sees them, and then what is written there the same way."""
    with memoryview(state[name]) as window:
        seen = bytes(window[at : at + size])
        if data:
            window[at : at + len(data)] = data
    return seen


def on_view(
    state: State, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    """A function of this module that takes a view's name."""
    return function(state, *arguments, name=name)


def facts_of_view(state: State, name: str = "view") -> dict[str, Any]:
    view = state[name]
    return {key: getattr(view, key) for key in ("ptr", "size", "objects", "read_only", "transport")}


def address_range_of(state: State, offset: int, name: str = "view") -> tuple[int, int]:
    found: tuple[int, int] = state["device"].address_range(state[name].ptr + offset)
    return found


def cpu_view_is_read_only(state: State, name: str = "view") -> bool:
    with memoryview(state[name]) as window:
        return window.readonly


def cpu_view_after_close(state: State, name: str = "view") -> tuple[bytes, str]:
    """What a CPU view shows when its range is closed, and the error of asking for another one."""
    view = state[name]
    window = memoryview(view)
    view.close()
    seen = bytes(window)
    window.release()
    try:
        memoryview(view).release()
    except (BufferError, ze_ipc.Closed) as error:
        return seen, type(error).__name__
    return seen, "nothing"


def reexport_view(state: State, offset: int, size: int, name: str = "view") -> bytes:
    """A handle of a part of an open range; close_device() ends it."""
    handle = state["device"].get_ipc_handle(state[name].ptr + offset, size)
    state.setdefault("handles", []).append(handle)
    return bytes(handle)


def put_handles(state: State) -> None:
    for handle in state.pop("handles", ()):
        handle.close()


def read_at(state: State, ptr: int, size: int) -> bytes:
    data: bytes = state["device"].read(ptr, size)
    return data


def close_device(state: State) -> None:
    put_handles(state)
    state.pop("device").close()


def can_open(state: State, handle: bytes) -> tuple[bool, str]:
    check = state["device"].can_open(handle)
    return check.ok, check.reason


def open_again(state: State, handle: bytes) -> str:
    """The error class that opening on a second device of the same process gives, or nothing."""
    with ze_ipc.open_device(state["device"].backend) as device:
        try:
            device.open_ipc_handle(handle, timeout=20.0).close()
        except ze_ipc.ZeIpcError as error:
            return type(error).__name__
    return ""
