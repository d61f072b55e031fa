"""Ranges that a driver shares by itself: its handles travel as they are, without our broker."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ze_ipc.handle import MAGIC
from ze_ipc.imported_objects import ImportedObjects
from ze_ipc.imported_range import ImportedRange
from ze_ipc.manifest import Manifest
from ze_ipc.range_handle import RangeHandle

if TYPE_CHECKING:
    from ze_ipc.backend import HandleType, NativeRanges
    from ze_ipc.device import Device
    from ze_ipc.known_rows import KnownRows


@dataclass(frozen=True, slots=True)
class NativeExport:
    """What an exporter knows of a handle that the driver made."""

    size: int
    """Bytes of the window."""
    object_count: int


def is_native(data: bytes) -> bool:
    """Whether these 64 bytes are a driver's rather than ours."""
    return data[: len(MAGIC)] != MAGIC


def export_range(
    device: Device,
    native: NativeRanges,
    known: KnownRows,
    ptr: int,
    size: int,
    handle_type: HandleType | None,
) -> RangeHandle:
    """The driver's handle of rows that are known; what it would refuse was refused before, with
    the address.
    """
    objects = len(set(known.rows.objects))
    data = native.export(ptr, size, known.context, handle_type)
    return RangeHandle(data, device, NativeExport(size, objects))


def open_range(device: Device, native: NativeRanges, data: bytes) -> ImportedRange:
    """Open a driver's handle; the driver says how long it is."""
    address, size, obj = native.open(data)
    # One object that stands for the whole window; its bytes are reached by their address only.
    manifest = Manifest(
        device_uuid=device.uuid,
        page_size=1,
        window_offset=0,
        window_size=size,
        va_phase=0,
        object_sizes=array("Q", [size]),
        object_indices=array("I", [0]),
        offsets=array("Q", [0]),
        sizes=array("Q", [size]),
        access=array("B", [0]),
    )
    objects = array("Q", [obj])
    held = ImportedObjects((data, address), b"", objects, 0)
    try:
        device._add_import(address, manifest, objects, size)
        return ImportedRange(device, address, manifest, held, "native", 0, size)
    except BaseException:
        device._backend.unmap(address, size, 0.0)
        device._imports.drop(held)
        raise
