"""From a window of VA to the mappings behind it; the one place that says what may be exported."""

from __future__ import annotations

from array import array
from typing import Protocol

from ze_ipc.columns import Columns
from ze_ipc.errors import AddressNotFound, InvalidArgument, InvalidNullPointer, InvalidSize
from ze_ipc.intervals import Interval
from ze_ipc.mapping_table import MappingTable


class Walkable(Protocol):
    """What walk() asks a table."""

    def usm_in(self, start: int, end: int) -> list[Interval[int]]: ...
    def window(self, ptr: int, size: int) -> Columns: ...


def walk(table: Walkable, ptr: int, size: int, page_size: int) -> Columns:
    """The mappings of ``[ptr, ptr + size)`` in order, clipped to the pages that the window touches.

    Refuses, in this order: size 0, ptr 0, any USM byte in the window (even if there are holes too),
    any hole, with its first address in the window. Bytes beyond the end of the address space are a
    hole like any other.
    """
    if size <= 0 or ptr <= 0:
        _check_arguments("get_ipc_handle", ptr, size)
    end = ptr + size
    if usm := table.usm_in(ptr, end):
        raise InvalidArgument(
            "the window includes a USM allocation",
            call="get_ipc_handle",
            address=max(usm[0].start, ptr),
            ptr=ptr,
            size=size,
            hint="export ranges of reservations mapped to physical memory only",
        )
    rows = table.window(ptr, size)
    _refuse_hole("get_ipc_handle", rows, ptr, end)
    rows.clip(ptr // page_size * page_size, -(-end // page_size) * page_size)
    return rows


def extents_of(table: MappingTable, ptr: int, size: int, call: str = "") -> Columns:
    """The mappings of ``[ptr, ptr + size)`` clipped to the byte, USM allocations included: what the
    device reads and writes through. Refuses size 0, ptr 0 and holes.
    """
    _check_arguments(call, ptr, size)
    end = ptr + size
    rows = table.window(ptr, size)
    if usm := table.usm_in(ptr, end):
        for allocation in usm:
            rows.append(allocation.start, allocation.end, allocation.value, 0, 0)
        rows = _sorted(rows)
    _refuse_hole(call, rows, ptr, end)
    return rows.clipped(ptr, end)


def _check_arguments(call: str, ptr: int, size: int) -> None:
    if size <= 0:
        raise InvalidSize("the window has no bytes", call=call, ptr=ptr, size=size)
    if ptr == 0:
        raise InvalidNullPointer("ptr is NULL", call=call, ptr=ptr, size=size)
    if ptr < 0:
        raise InvalidArgument("ptr is negative", call=call, ptr=ptr, size=size)


def _refuse_hole(call: str, rows: Columns, ptr: int, end: int) -> None:
    hole = rows.first_hole(ptr, end)
    if hole is not None:
        raise AddressNotFound(
            "part of the range is not mapped",
            call=call,
            address=hole[0],
            end=hole[1],
            ptr=ptr,
            size=end - ptr,
        )


def _sorted(rows: Columns) -> Columns:
    order = sorted(range(len(rows)), key=rows.starts.__getitem__)
    return Columns(
        array("Q", (rows.starts[i] for i in order)),
        array("Q", (rows.ends[i] for i in order)),
        array("Q", (rows.objects[i] for i in order)),
        array("Q", (rows.offsets[i] for i in order)),
        array("B", (rows.access[i] for i in order)),
    )
