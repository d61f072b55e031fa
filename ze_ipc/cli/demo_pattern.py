"""Bytes that two processes agree on by a seed, and the check that a range holds exactly them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ze_ipc.device import Device

CHUNK = 8 << 20
"""Bytes handled at once when every byte is checked."""
FULL_LIMIT = 512 << 20
"""Bytes: a larger range is checked by stamps, so that a sparse demo of 100,000 objects needs little
memory.
"""
STAMP = 16
"""Bytes of a stamp: one at the start and one at the end of every object."""
GPU_SAMPLES = 512
"""Borders of a large range that are read through the copy engine besides by the CPU."""

Progress = Callable[[int], None]
"""Told the number of bytes or stamps done since the last call."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a range of ``objects`` objects of ``object_size`` bytes holds after ``write``."""

    seed: int
    objects: int
    object_size: int

    @property
    def size(self) -> int:
        """Bytes of the range."""
        return self.objects * self.object_size

    @property
    def full(self) -> bool:
        """Whether every byte is written and checked, or two stamps an object."""
        return self.size <= FULL_LIMIT

    @property
    def method(self) -> str:
        """The check in words."""
        return "every byte" if self.full else f"{STAMP} bytes at both ends of every object"

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """(offset in the range, bytes) of everything that is written, in order."""
        if self.full:
            source = random.Random(self.seed)
            for offset in range(0, self.size, CHUNK):
                yield offset, source.randbytes(min(CHUNK, self.size - offset))
            return
        # One piece across each border between objects, for a piece costs a call.
        for border in range(self.objects + 1):
            begin = max(border * self.object_size - STAMP, 0)
            end = min(border * self.object_size + STAMP, self.size)
            yield begin, self._stamp(border)[: end - begin]

    def _stamp(self, border: int) -> bytes:
        return hashlib.blake2b(
            border.to_bytes(8, "little"),
            key=self.seed.to_bytes(8, "little"),
            digest_size=2 * STAMP,
        ).digest()

    def write(self, device: Device, base: int, progress: Progress) -> None:
        """Write it through the CPU."""
        for offset, data in self.pieces():
            device.write(base + offset, data)
            progress(len(data))

    def first_difference(self, device: Device, base: int, progress: Progress) -> int | None:
        """Offset of the first byte of the range that is not as written, read by the CPU; None if
        all are.
        """
        for offset, data in self.pieces():
            found = device.read(base + offset, len(data))
            if found != data:
                return offset + _first_difference(found, data)
            progress(len(data))
        return None

    def first_gpu_difference(self, device: Device, base: int) -> tuple[int | None, int]:
        """As first_difference, but through the copy engine into an allocation; and the number of
        bytes checked.
        """
        pieces = self.pieces()
        every = 1 if self.full else max(1, self.objects // GPU_SAMPLES)
        checked = 0
        with device.allocate(CHUNK if self.full else 2 * STAMP, kind="host") as staging:
            for number, (offset, data) in enumerate(pieces):
                if number % every:
                    continue
                device.copy(staging.ptr, base + offset, len(data))
                found = device.read(staging.ptr, len(data))
                if found != data:
                    return offset + _first_difference(found, data), checked
                checked += len(data)
        return None, checked

    @property
    def written(self) -> int:
        """Bytes that write() writes."""
        return self.size if self.full else 2 * STAMP * self.objects


def _first_difference(found: bytes, expected: bytes) -> int:
    return next(i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b)
