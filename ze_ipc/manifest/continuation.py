"""Whether one manifest goes on where another ends, and with what."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from ze_ipc.manifest.model import Manifest


@dataclass(frozen=True, slots=True)
class Tail:
    """The extents of a manifest after those of a shorter one, as columns."""

    object_indices: array[int]
    offsets: array[int]
    sizes: array[int]
    access: array[int]


def continuation(old: Manifest, new: Manifest) -> Tail | None:
    """What ``new`` has after the pages of ``old``; None where it does not begin with just these.

    That equal numbers stand for the same objects is for the caller to know (``lineage``).
    """
    same_place = (
        old.device_uuid == new.device_uuid
        and old.lineage == new.lineage
        and old.page_size == new.page_size
        and old.window_offset == new.window_offset
        and old.va_phase == new.va_phase
    )
    last = old.extent_count - 1
    if not same_place or last >= new.extent_count or new.window_size < old.window_size:
        return None
    if new.object_sizes[: old.object_count] != old.object_sizes:
        return None
    columns = (
        (old.object_indices, new.object_indices),
        (old.offsets, new.offsets),
        (old.access, new.access),
    )
    if any(long[: last + 1] != short for short, long in columns):
        return None
    more = new.sizes[last] - old.sizes[last]
    if new.sizes[:last] != old.sizes[:last] or more < 0:
        return None
    # Where the last extent goes on in the same object, the two have become one.
    head = [last] if more else []
    tail = Tail(
        array("I", [new.object_indices[i] for i in head]),
        array("Q", [new.offsets[i] + old.sizes[i] for i in head]),
        array("Q", [more] if more else []),
        array("B", [new.access[i] for i in head]),
    )
    tail.object_indices.extend(new.object_indices[last + 1 :])
    tail.offsets.extend(new.offsets[last + 1 :])
    tail.sizes.extend(new.sizes[last + 1 :])
    tail.access.extend(new.access[last + 1 :])
    return tail
