"""From walked rows to a manifest."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable
from itertools import compress

from ze_ipc import lanes
from ze_ipc.columns import Columns
from ze_ipc.errors import UnsupportedSize
from ze_ipc.manifest.model import MAX_EXTENTS, VA_PHASE_SIZE, Manifest


def build(
    rows: Columns,
    ptr: int,
    size: int,
    *,
    device_uuid: bytes,
    page_size: int,
    object_sizes: Callable[[array[int]], array[int]],
) -> tuple[Manifest, array[int]]:
    """The manifest of walk()'s rows for the window ``[ptr, ptr + size)``, and its objects in order
    of first appearance.

    Every object appears once; neighbours that continue each other in object, offset and access
    become one extent. ``object_sizes`` is the backend's.
    """
    distinct: dict[int, None] = {}
    # A dict of a million objects takes much more room than all else here: only where one may come
    # twice, which new handles, given in order, do not.
    ascending = len(rows) > 1 and lanes.strictly_ascending(rows.objects)
    if not ascending:
        distinct = dict.fromkeys(rows.objects)
    if ascending or len(distinct) == len(rows):
        objects = rows.objects[:]
        indices = array("I", range(len(rows)))
    else:
        rows = merge(rows)
        objects = array("Q", distinct)
        index_of = dict(zip(distinct, range(len(distinct)), strict=True))
        indices = array("I", map(index_of.__getitem__, rows.objects))
    if len(rows) > MAX_EXTENTS:
        raise UnsupportedSize(
            "more extents than a manifest can carry", call="get_ipc_handle", extents=len(rows)
        )
    manifest = Manifest(
        device_uuid=device_uuid,
        page_size=page_size,
        window_offset=ptr - rows.starts[0],
        window_size=size,
        va_phase=rows.starts[0] % VA_PHASE_SIZE,
        object_sizes=object_sizes(objects),
        object_indices=indices,
        offsets=rows.offsets,
        sizes=rows.sizes,
        access=rows.access,
    )
    return manifest, objects


def merge(rows: Columns) -> Columns:
    """The same pages in as few rows as possible; the rows must be back to back.

    A row goes on where its neighbour ends in the VA *and* in the same object with the same access;
    an alias (same object, offset that does not go on) stays a row of its own.
    """
    same_object = map(operator.eq, rows.objects[1:], rows.objects)
    if not any(same_object):
        return rows
    object_ends = map(operator.add, rows.offsets, rows.sizes)
    goes_on = map(operator.eq, rows.offsets[1:], object_ends)
    same_object = map(operator.eq, rows.objects[1:], rows.objects)
    same_access = map(operator.eq, rows.access[1:], rows.access)
    joined = map(operator.and_, map(operator.and_, goes_on, same_object), same_access)
    heads = bytearray(b"\1") + bytearray(map(operator.not_, joined))
    if 0 not in heads:
        return rows
    starts = array("Q", compress(rows.starts, heads))
    ends = starts[1:]
    ends.append(rows.ends[-1])
    return Columns(
        starts,
        ends,
        array("Q", compress(rows.objects, heads)),
        array("Q", compress(rows.offsets, heads)),
        array("B", compress(rows.access, heads)),
    )
