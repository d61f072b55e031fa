"""What other code of this process maps, by the loader's tracing layer; the C side keeps it."""

from __future__ import annotations

import errno
import os
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ze_ipc._ze import ffi, lib
from ze_ipc.backend import SeenWindow
from ze_ipc.errors import (
    AddressNotFound,
    HandleObjectInUse,
    OutOfHostMemory,
    Result,
    UnsupportedFeature,
    ZeIpcError,
)
from ze_ipc.level_zero.context import Context, refused, u64
from ze_ipc.level_zero.drivers import find_drivers
from ze_ipc.level_zero.errors import ze_error
from ze_ipc.level_zero.table import Table, open_table

VARIABLE = "ZE_ENABLE_TRACING_LAYER"
PROOF = 2 << 20
"""Bytes that are reserved and given back, to see whether that is seen."""
STOP_SECONDS = 5.0

_lock = threading.Lock()
_users = 0


def start() -> None:
    """Switch it on, or count one user more. UnsupportedFeature says what the loader lacks."""
    global _users
    with _lock:
        if _users == 0:
            _switch_on(open_table())
        _users += 1


def stop() -> None:
    """One user less; the last one switches it off, and what was seen is forgotten."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            _switch_off()


def _switch_on(table: Table) -> None:
    driver = find_drivers(table)[0]
    report = ffi.new("struct ze_observe_report *")
    rc = lib.ze_observe_start(table.library.encode(), report)
    if rc == -errno.ENOSYS:
        raise UnsupportedFeature(
            "this loader cannot trace calls",
            call=ffi.string(report.call).decode(),
            hint="install a loader with its tracing layer (libze_tracing_layer.so.1)",
            library=table.library,
        )
    if rc and report.result == Result.UNINITIALIZED:
        raise _layer_is_off(table)
    if rc:
        raise ze_error(report.result, ffi.string(report.call).decode())
    try:
        _prove(table, driver.handle)
    except BaseException:
        _switch_off()
        raise


@contextmanager
def _context(table: Table, driver: Any) -> Iterator[Any]:
    desc = ffi.new("ze_context_desc_t *", {"stype": lib.ZE_STRUCTURE_TYPE_CONTEXT_DESC})
    context = ffi.new("ze_context_handle_t *")
    table.call("ContextCreate", driver, desc, context)
    try:
        yield context[0]
    finally:
        table.result("ContextDestroy", context[0])


def _prove(table: Table, driver: Any) -> None:
    """Raise unless a call of this process is seen."""
    out = ffi.new("void **")
    with _context(table, driver) as context:
        before = lib.ze_observe_calls()
        table.call("VirtualMemReserve", context, ffi.NULL, PROOF, out)
        seen = lib.ze_observe_calls() != before
        table.call("VirtualMemFree", context, out[0], PROOF)
    if not seen:
        raise _layer_is_off(table)


def _layer_is_off(table: Table) -> UnsupportedFeature:
    return UnsupportedFeature(
        "the loader's tracing layer is off, and this loader turns it on when it starts or never",
        call="zelTracerCreate",
        hint=f"set {VARIABLE}=1 before anything of this process uses Level Zero, and see that "
        "libze_tracing_layer.so.1 is installed beside the loader",
        library=table.library,
        variable=os.environ.get(VARIABLE, "not set"),
    )


def _switch_off() -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while lib.ze_observe_stop() == -errno.EBUSY:  # another thread is in a callback
        if time.monotonic() > deadline:
            raise HandleObjectInUse("a traced call does not end", call="zelTracerDestroy")
        time.sleep(0.001)


def seen_window(context: Context, start: int, end: int) -> SeenWindow | None:
    """What is known of ``[start, end)``; None while it is off."""
    if _users == 0:
        return None
    room = 64
    while True:
        starts, ends, objects, offsets = (array("Q", bytes(8 * room)) for _ in range(4))
        access = array("B", bytes(room))
        columns = [u64(column) for column in (starts, ends, objects, offsets)]
        state = ffi.new("struct ze_seen *", (*columns, ffi.from_buffer("uint8_t[]", access), room))
        with context as space:
            rc = lib.ze_observe_window(space, start, end, state)
        if rc != -errno.ENOBUFS:
            break
        room = 2 * (state.mappings + state.allocations + state.reservations) + 64
    if rc:
        raise _error(rc, state.address)
    count = state.mappings
    spans = list(zip(starts[count:], ends[count:], strict=True))
    return SeenWindow(
        starts=starts[:count],
        ends=ends[:count],
        objects=objects[:count],
        offsets=offsets[:count],
        access=access[:count],
        allocations=spans[: state.allocations],
        reservations=spans[state.allocations :][: state.reservations],
        context=state.context,
    )


def _error(rc: int, address: int) -> ZeIpcError:
    call = "get_ipc_handle"
    if rc == -errno.ENXIO:
        return AddressNotFound(
            "what is mapped here was made before ze_ipc.observe(), or is destroyed already",
            call=call,
            address=address,
            hint="call ze_ipc.observe() before the memory is made",
        )
    if rc == -errno.EXDEV:
        return UnsupportedFeature(
            "this memory is of another device",
            call=call,
            address=address,
            hint="export it by an open device that is the one it was made on",
        )
    if rc == -errno.ENODATA:
        return OutOfHostMemory("calls were lost for want of memory", call=call)
    return refused(rc, None, call, address=address)
