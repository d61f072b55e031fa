"""A manifest as bytes, and back: all validation of foreign bytes is in parse().

All fields are little-endian. After the header come the columns, each without padding: object_sizes
(u64 an object), offsets and sizes (u64 an extent), object_indices (u32), access (u8).

======  =====  ==============================================================
offset  width  field of the header
======  =====  ==============================================================
0       4      magic ``ZIPM``
4       2      version, 1
6       2      bytes of the header, 112
8       4      objects
12      4      extents
16      8      page_size
24      8      window_offset
32      8      window_size
40      8      va_phase
48      16     device uuid
64      16     lineage
80      32     sha256 of bytes 0 to 79 and of the columns
======  =====  ==============================================================
"""

from __future__ import annotations

import struct
import sys
from array import array
from hashlib import sha256
from itertools import accumulate
from typing import Any

from ze_ipc import lanes
from ze_ipc.backend import READ_ONLY
from ze_ipc.errors import InvalidHandle
from ze_ipc.manifest.model import MAX_EXTENTS, VA_PHASE_SIZE, Manifest

MAGIC = b"ZIPM"
VERSION = 1
HEADER_SIZE = 112

KERNEL_PAGE_SIZE = 4096

FEW = 24
"""Extents up to which a Python loop is faster than whole columns."""

_HEADER = struct.Struct("<4sHHIIQQQQ16s16s")
_ROW_SIZE = 8 + 8 + 4 + 1
_ACCESS_VALUES = bytes((0, READ_ONLY))


def encode(manifest: Manifest) -> bytes:
    """The bytes of a manifest; equal manifests give equal bytes."""
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        HEADER_SIZE,
        len(manifest.object_sizes),
        len(manifest.sizes),
        manifest.page_size,
        manifest.window_offset,
        manifest.window_size,
        manifest.va_phase,
        manifest.device_uuid,
        manifest.lineage,
    )
    columns = (
        _little_endian(manifest.object_sizes),
        _little_endian(manifest.offsets),
        _little_endian(manifest.sizes),
        _little_endian(manifest.object_indices),
        manifest.access,
    )
    hashed = sha256(header)
    for column in columns:
        hashed.update(column)
    return b"".join((header, hashed.digest(), *columns))


def seal(
    columns: bytes,
    objects: int,
    extents: int,
    *,
    page_size: int,
    window_offset: int,
    window_size: int,
    va_phase: int,
    device_uuid: bytes,
    lineage: bytes,
) -> bytes:
    """The bytes of a manifest whose columns are at hand as they travel."""
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        HEADER_SIZE,
        objects,
        extents,
        page_size,
        window_offset,
        window_size,
        va_phase,
        device_uuid,
        lineage,
    )
    return header + sha256(header + columns).digest() + columns


def parse(data: bytes | bytearray | memoryview) -> Manifest:
    """The manifest of foreign bytes, or InvalidHandle that says what is wrong.

    Nothing larger than the bytes themselves is allocated, and no device is asked: that the objects
    really have their sizes is for the receiver of their dma-bufs to check.
    """
    manifest = _decode(data if isinstance(data, bytes) else bytes(data))
    _check_header(manifest)
    if manifest.extent_count <= FEW:
        _check_few(manifest)
    else:
        _check_extents(manifest)
    return manifest


class Glance:
    """A manifest of which only the header was looked at, and the digest: its columns may be wrong
    in every way that parse() knows.
    """

    __slots__ = (
        "covered_size",
        "device_uuid",
        "digest",
        "extent_count",
        "object_count",
        "page_size",
        "raw",
        "va_phase",
        "window_offset",
        "window_size",
    )

    def __init__(self, raw: bytes) -> None:
        """Raises what parse() raises of a header."""
        header = _decode_header(raw)
        (_, _, _, self.object_count, self.extent_count, *numbers, self.device_uuid, _) = header
        self.page_size, self.window_offset, self.window_size, self.va_phase = numbers
        self.digest = raw[_HEADER.size : HEADER_SIZE]
        _check_header(self)
        end = self.window_offset + self.window_size
        self.covered_size = -(-end // self.page_size) * self.page_size
        self.raw = raw


def digest(data: bytes | bytearray | memoryview) -> bytes:
    """The digest that stands in encoded bytes; equal for equal manifests only."""
    return bytes(memoryview(data)[_HEADER.size : HEADER_SIZE])


def _decode_header(view: bytes) -> tuple[Any, ...]:
    if len(view) < HEADER_SIZE:
        raise _invalid("shorter than its header", length=len(view))
    header = _HEADER.unpack_from(view)
    magic, version, header_size, objects, extents = header[:5]
    if magic != MAGIC:
        raise _invalid("not a manifest", magic=magic)
    if version != VERSION or header_size != HEADER_SIZE:
        raise _invalid("of another version", version=version, known=VERSION)
    if not 1 <= objects <= extents <= MAX_EXTENTS:
        raise _invalid("impossible counts", objects=objects, extents=extents)
    length = HEADER_SIZE + 8 * objects + _ROW_SIZE * extents
    if len(view) != length:
        raise _invalid("its length is not that of its counts", length=len(view), expected=length)
    hashed = sha256(view[: _HEADER.size])
    hashed.update(memoryview(view)[HEADER_SIZE:])
    if hashed.digest() != view[_HEADER.size : HEADER_SIZE]:
        raise _invalid("its digest does not match")
    return header


def _decode(view: bytes) -> Manifest:
    (_, _, _, objects, extents, page_size, offset, size, phase, uuid, lineage) = _decode_header(
        view
    )
    ends = HEADER_SIZE + 8 * objects, 8 * extents, 8 * extents, 4 * extents, extents
    at, a, b, c, d = accumulate(ends)
    columns = (
        array("Q", view[HEADER_SIZE:at]),
        array("I", view[b:c]),
        array("Q", view[at:a]),
        array("Q", view[a:b]),
    )
    if sys.byteorder != "little":
        for column in columns:
            column.byteswap()
    return Manifest(uuid, page_size, offset, size, phase, *columns, array("B", view[c:d]), lineage)


def _check_header(manifest: Manifest | Glance) -> None:
    page = manifest.page_size
    if page & (page - 1) or not KERNEL_PAGE_SIZE <= page <= VA_PHASE_SIZE:
        raise _invalid("page size is not a power of two from 4 KiB to 2 MiB", page_size=page)
    if manifest.va_phase % page or manifest.va_phase >= VA_PHASE_SIZE:
        raise _invalid("phase of the VA is not that of a page", va_phase=manifest.va_phase)
    if not manifest.window_size or manifest.window_size >= lanes.LIMIT:
        raise _invalid("impossible window", window_size=manifest.window_size)
    if manifest.window_offset >= page:
        raise _invalid("window begins after the first page", window_offset=manifest.window_offset)


def _check_few(manifest: Manifest) -> None:
    """What _check_extents() checks, one by one: faster for a few."""
    page, kernel_page = manifest.page_size - 1, KERNEL_PAGE_SIZE - 1
    objects = manifest.object_sizes
    known = covered = 0
    for size in objects:
        if size & kernel_page or size >= lanes.LIMIT:
            raise _invalid("an object's size is not a sane multiple of 4 KiB", size=size)
    rows = zip(
        manifest.object_indices, manifest.offsets, manifest.sizes, manifest.access, strict=True
    )
    for index, offset, size, access in rows:
        if (offset | size) & page or not size:
            raise _invalid("an extent is not whole pages", offset=offset, size=size)
        if access & ~READ_ONLY:
            raise _invalid("unknown access bits", access=access)
        if index >= known:
            if index > known or known == len(objects):
                raise _invalid("objects are not numbered by first appearance", index=index)
            known += 1
        if offset + size > objects[index]:
            raise _invalid("an extent reaches beyond its object", index=index)
        covered += size
    if known != len(objects):
        raise _invalid("an object without extents", objects=len(objects))
    if covered != manifest.covered_size:
        raise _invalid("the extents are not the pages of the window", covered=covered)


def _check_extents(manifest: Manifest) -> None:
    """Every extent is whole pages inside its object, and together they are the window's pages."""
    count = manifest.extent_count
    offsets, sizes = lanes.wide(manifest.offsets), lanes.wide(manifest.sizes)
    for name, value in (("offset", offsets), ("size", sizes)):
        if not lanes.none_has_bits(value, lanes.LIMIT | (manifest.page_size - 1), count):
            raise _invalid(f"an extent's {name} is not a sane multiple of the page size")
    if not lanes.all_at_least(sizes, lanes.repeat(1, count), count):
        raise _invalid("an extent of no bytes")
    covered = sum(manifest.sizes)
    if covered != manifest.covered_size:
        raise _invalid("the extents are not the pages of the window", covered=covered)
    if manifest.access.tobytes().translate(None, _ACCESS_VALUES):
        raise _invalid("unknown access bits")
    _check_indices(manifest)
    _check_objects(manifest, offsets + sizes)


def _check_indices(manifest: Manifest) -> None:
    """Objects are numbered by first appearance, so each is used and each index has its object."""
    ascending = array("I", range(manifest.object_count))
    indices = manifest.object_indices
    if indices != ascending and array("I", dict.fromkeys(indices)) != ascending:
        raise _invalid("the extents do not use each object, in order of first appearance")


def _check_objects(manifest: Manifest, extent_ends: int) -> None:
    """``extent_ends`` is where extents end in their objects, as lanes; no lane has overflowed."""
    limits = manifest.object_sizes
    bits = lanes.LIMIT | (KERNEL_PAGE_SIZE - 1)
    if not lanes.none_has_bits(lanes.wide(limits), bits, len(limits)):
        raise _invalid("an object's size is not a sane multiple of 4 KiB")
    count = manifest.extent_count
    if manifest.object_count != count:
        limits = array("Q", map(limits.__getitem__, manifest.object_indices))
    if not lanes.all_below_limit(extent_ends, count) or not lanes.all_at_least(
        lanes.wide(limits), extent_ends, count
    ):
        raise _invalid("an extent reaches beyond its object")


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped


def _invalid(cause: str, **values: Any) -> InvalidHandle:
    return InvalidHandle(
        f"the exporter's manifest is wrong: {cause}",
        call="open_ipc_handle",
        hint="use the same version of ze_ipc on both sides",
        **values,
    )
