"""The range that the documentation draws: 12 objects, two holes, three offsets, one alias."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ze_ipc.device import Device
from ze_ipc.reservation import Reservation

KIB = 1 << 10

OBJECT_SIZES = [256, 128, 512, 256, 128, 512, 256, 128, 64, 256, 384, 256]
"""KiB."""

# (object, offset, size) in KiB, or a hole of so many KiB.
PLAN: list[tuple[int, int, int] | int] = [
    *((0, 0, 256), (1, 0, 128), (2, 64, 256), (3, 0, 256)),
    192,
    *((4, 0, 128), (5, 0, 512), (6, 128, 128), (7, 0, 128), (1, 0, 128), (8, 0, 64)),
    320,
    *((9, 0, 256), (10, 128, 192), (11, 0, 256)),
]
READ_ONLY = 7
SIZE = KIB * sum(step if isinstance(step, int) else step[2] for step in PLAN)


@contextmanager
def twelve_objects(device: Device) -> Iterator[Reservation]:
    """The range, mapped."""
    with ExitStack() as held:
        range_ = held.enter_context(device.reserve(SIZE, 0x4000_0000))
        objects = [held.enter_context(device.physical_memory(size * KIB)) for size in OBJECT_SIZES]
        at = 0
        for step in PLAN:
            if isinstance(step, int):
                at += step * KIB
                continue
            obj, offset, size = step
            access = "ro" if obj == READ_ONLY else "rw"
            range_.map(objects[obj], at, offset * KIB, size * KIB, access)
            at += size * KIB
        yield range_
