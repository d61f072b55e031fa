"""Ranges that grow: a handle that goes on where another ends, and a view that follows in place."""

from __future__ import annotations

import time
from array import array
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ze_ipc import arguments, native_range, share, transport
from ze_ipc import manifest as manifests
from ze_ipc.errors import (
    InvalidArgument,
    InvalidHandle,
    InvalidSize,
    OutOfDeviceMemory,
    UnsupportedFeature,
)
from ze_ipc.export import Export
from ze_ipc.handle import HandleFields
from ze_ipc.known_rows import known_rows
from ze_ipc.manifest import Manifest, Tail, continuation, parse

if TYPE_CHECKING:
    from ze_ipc.device import Device
    from ze_ipc.imported_objects import ImportedObjects
    from ze_ipc.imported_range import ImportedRange
    from ze_ipc.mapping_table import MappingTable
    from ze_ipc.native_range import NativeExport
    from ze_ipc.range_handle import RangeHandle

    Extents = tuple[array[int], array[int], array[int], array[int]]
    """(objects, offsets, sizes, access)."""

_EXTEND = "RangeHandle.extend"
_FOLLOW = "ImportedRange.extend"


def extend_handle(
    device: Device, export: Export | NativeExport | None, size: int | None
) -> RangeHandle:
    """A handle of a longer window from the same address on; the caller holds the device's lock."""
    if size is not None:
        arguments.positive(_EXTEND, "size", size)
    if not isinstance(export, Export):
        raise UnsupportedFeature(
            "the driver's own handles do not grow",
            call=_EXTEND,
            hint="make a new handle with get_ipc_handle()",
        )
    if export.is_extended:
        raise InvalidArgument(
            "this handle was extended already",
            call=_EXTEND,
            hint="extend the newest handle of the range, and close the older ones when you like",
        )
    new_size = mapped_size(device._table, export.ptr, export.size) if size is None else size
    if new_size <= export.size:
        raise InvalidSize(
            "the range has not grown",
            call=_EXTEND,
            hint="map more memory right behind it first",
            size=new_size,
            of=export.size,
        )
    old = parse(export.manifest_bytes)
    known = known_rows(device, export.ptr, new_size)
    try:
        handle = share.export_range(
            device, known.rows, export.ptr, new_size, export.policy, old.lineage
        )
    finally:
        if known.held is not None:
            device._backend.release_objects(known.held)
    with ExitStack() as undo:
        undo.callback(handle.close)
        new_export = handle._export
        new = parse(new_export.manifest_bytes)  # type: ignore[union-attr]
        held, now = export.objects, new_export.objects  # type: ignore[union-attr]
        if continuation(old, new) is None or not held or not now or now[: len(held)] != held:
            raise InvalidArgument(
                "what this handle covers was mapped anew since it was made",
                call=_EXTEND,
                hint="make a new handle with get_ipc_handle(), which importers open anew",
                address=export.ptr,
                size=export.size,
            )
        undo.pop_all()
    export.is_extended = True
    return handle


def mapped_size(table: MappingTable, ptr: int, size: int) -> int:
    """Bytes from ``ptr`` to the first hole at or after ``ptr + size``, or to the end of the
    reservation that has the last of them.
    """
    reservation = table.reservation_at(ptr + size - 1)
    if reservation is None:
        return size
    end = reservation.ptr + reservation.size
    if end == ptr + size:
        return size
    hole = table.window(ptr, end - ptr).first_hole(ptr, end)
    return (end if hole is None else hole[0]) - ptr


def follow(
    view: ImportedRange, data: bytes | bytearray | memoryview | RangeHandle, timeout: float
) -> None:
    """Map what the handle has after the end of the view, right behind it. All or nothing."""
    deadline = time.monotonic() + arguments.seconds(_FOLLOW, timeout)
    raw = arguments.handle(_FOLLOW, data)
    native = view._device._backend.native
    if view.transport == "native" or (native is not None and native_range.is_native(raw)):
        raise UnsupportedFeature(
            "the driver's own handles do not grow", call=_FOLLOW, hint="open the new handle anew"
        )
    with view._grow_lock:
        _follow(view, HandleFields.unpack(raw), deadline)


def _follow(view: ImportedRange, fields: HandleFields, deadline: float) -> None:
    device = view._device
    old = view._manifest
    cache, key = device._imports, (fields.broker, fields.generation)
    if view._objects.key[0] != fields.broker or not any(old.lineage):
        raise _no_continuation("the handle is of another range")
    held = cache.acquire(key)
    connection = None
    try:
        connection = transport.connect(fields, deadline)
        if held is None:
            connection.request_from(old.object_count)
        else:
            connection.request(skip_objects=True)
        raw = connection.manifest(device._backend.receive_bytes)
        manifest = parse(raw)
        digest = manifests.digest(raw)
        new = manifests.widen(manifest, device.page_size)
        tail = continuation(old, new)
        if tail is None:
            if continuation(new, old) is not None:
                raise _no_continuation("the handle is older than what is open here")
            raise _no_continuation("the handle is of another range, or that was mapped anew")
        if new.covered_size > view._room:
            raise OutOfDeviceMemory(
                "the view has no room to grow in place",
                call=_FOLLOW,
                hint=f"open it with reserve={new.covered_size:#x} bytes or more",
                size=new.covered_size,
                room=view._room,
            )
        if held is None:
            objects = _tail_objects(device, connection, view._objects, manifest, deadline)
            held = cache.add(key, digest, objects, cache.new_token())
        elif held.digest != digest:
            raise InvalidHandle("the exporter described the same export in two ways", call=_FOLLOW)
        before = _map_tail(view, new, tail, held, deadline)
    except BaseException:
        if connection is not None:
            connection.close()
        if held is not None:
            cache.drop(held)
        raise
    held.told = connection
    connection.finish(token=held.token)
    cache.drop(before)


def _tail_objects(
    device: Device,
    connection: transport.Connection,
    before: ImportedObjects,
    manifest: Manifest,
    deadline: float,
) -> array[int]:
    """All objects of the manifest, one reference each: those that are here, and those that come."""
    backend = device._backend
    have = before.objects[:]
    sizes = manifest.object_sizes[len(have) :]
    objects = array("Q")
    if sizes:
        objects = backend.receive_objects(connection.fileno(), sizes, deadline)
    try:
        backend.retain_objects(have)
    except BaseException:
        backend.release_objects(objects)
        raise
    return have + objects


def _map_tail(
    view: ImportedRange, new: Manifest, tail: Tail, held: ImportedObjects, deadline: float
) -> ImportedObjects:
    """The view is as long as the manifest afterwards; what it held before."""
    if not tail.sizes:
        return _enter(view, new, None, held)
    backend = view._device._backend
    objects = array("Q", map(held.objects.__getitem__, tail.object_indices))
    columns = objects, tail.offsets, tail.sizes, tail.access
    address, size = view._base + view._manifest.covered_size, sum(tail.sizes)
    backend.map_extents(address, *columns, deadline)
    with ExitStack() as undo:
        undo.callback(backend.unmap, address, size, deadline)
        before = _enter(view, new, columns, held)
        undo.pop_all()
    return before


def _enter(
    view: ImportedRange, new: Manifest, tail: Extents | None, held: ImportedObjects
) -> ImportedObjects:
    """Enter what a view has grown by into its device's table; what it held before."""
    device = view._device
    table = device._table
    with device._lock, ExitStack() as undo:
        view._check(_FOLLOW)
        if tail is not None:
            at = view._base + view._manifest.covered_size
            device._backend.retain_objects(tail[0])
            undo.callback(device._backend.release_objects, tail[0])
            table.map_extents(at, *tail)
            undo.callback(table.unmap, at, sum(tail[2]))
        table.remove_import(view._base, view._room)
        table.add_import(view._base + new.window_offset, new.window_size)
        undo.pop_all()
        return view._follow(new, held)


def _no_continuation(cause: str) -> InvalidArgument:
    return InvalidArgument(
        cause,
        call=_FOLLOW,
        hint="pass what handle.extend() gave for the handle that was opened here, or open it anew",
    )
