"""What processes on a driver with the range extension do: functions for a Peer."""

from __future__ import annotations

from typing import Any

import ze_ipc
from helpers import ranges
from ze_ipc import errors
from ze_ipc.peer_process import State


def describe(state: State) -> dict[str, Any]:
    device = state["device"]
    return {"way": device.ipc_path, "reason": device.ipc_path_reason, "page": device.page_size}


def export_offsets(state: State, page: int, start: int, size: int) -> tuple[bytes, bytes]:
    """Four objects of two pages, each mapped from its first or second; (handle, its bytes)."""
    device = state["device"]
    reservation = state["reservation"] = device.reserve(4 * page)
    for index in range(4):
        with device.physical_memory(2 * page) as memory:
            reservation.map(memory, at=index * page, offset=page * (index % 2), size=page)
    data = ranges.pattern(4 * page, 5)
    device.write(reservation.ptr, data)
    state["handle"] = device.get_ipc_handle(reservation.ptr + start, size)
    return bytes(state["handle"]), data[start : start + size]


def transport(state: State) -> str:
    return str(state["view"].transport)


def drop_exported(state: State) -> None:
    state.pop("reservation").close()


def read_exported(state: State, at: int, size: int) -> bytes:
    return bytes(state["device"].read(state["reservation"].ptr + at, size))


def driver_refusals(state: State, page: int) -> dict[str, str]:
    """What the driver itself says, asked past our own checks: error classes by case."""
    device = state["device"]
    native = device._backend.native
    said = {}
    with device.reserve(4 * page) as reservation, device.allocate(page) as usm:
        for at in (0, page, 3 * page):
            with device.physical_memory(page) as memory:
                reservation.map(memory, at=at)
        cases = {
            "hole": (reservation.ptr, 4 * page),
            "size": (reservation.ptr, 0),
            "null": (0, page),
            "usm": (usm.ptr, page),
            "good": (reservation.ptr + 5, page),
        }
        for name, (ptr, size) in cases.items():
            try:
                native.put(native.export(ptr, size, 0, None))
                said[name] = "nothing"
            except errors.ZeIpcError as error:
                said[name] = type(error).__name__
    return said


def observe_refusal(state: State) -> tuple[str, str]:
    """(class, hint) of the error that observing gives, or nothing."""
    try:
        ze_ipc.observe().close()
    except ze_ipc.ZeIpcError as error:
        return type(error).__name__, error.hint
    return "nothing", ""


def offset_refusal(state: State, page: int) -> tuple[str, str]:
    """(class, call) of the error that mapping an object from its second page on gives."""
    device = state["device"]
    with device.reserve(page) as reservation, device.physical_memory(2 * page) as memory:
        reservation.map(memory, at=0, size=page)
        reservation.unmap(0, page)
        try:
            reservation.map(memory, at=0, offset=page, size=page)
        except ze_ipc.ZeIpcError as error:
            return type(error).__name__, error.call
    return "nothing", ""


def export_typed(state: State, page: int, handle_type: Any) -> bytes | int:
    """A handle of a type, or the code of its refusal."""
    device = state["device"]
    with device.reserve(page) as reservation, device.physical_memory(page) as memory:
        reservation.map(memory, at=0)
        try:
            with device.get_ipc_handle(reservation.ptr, page, handle_type=handle_type) as handle:
                return bytes(handle)
        except ze_ipc.ZeIpcError as error:
            return int(error.result)


def refusal(state: State, handle: bytes) -> str:
    """The class of the error that opening a handle gives, or nothing."""
    try:
        state["device"].open_ipc_handle(handle, timeout=5.0).close()
    except ze_ipc.ZeIpcError as error:
        return type(error).__name__
    return "nothing"


def export_refusal(state: State, page: int, objects: int) -> tuple[str, str]:
    """(class, text) of the error that exporting so many objects gives."""
    device = state["device"]
    with device.reserve(objects * page) as reservation:
        for index in range(objects):
            with device.physical_memory(page) as memory:
                reservation.map(memory, at=index * page)
        try:
            device.get_ipc_handle(reservation.ptr, objects * page).close()
        except ze_ipc.ZeIpcError as error:
            return type(error).__name__, str(error)
    return "nothing", ""
