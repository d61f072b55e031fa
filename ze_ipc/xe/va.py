"""A heap of GPU virtual addresses."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from ze_ipc.errors import InvalidArgument, OutOfDeviceMemory

_GROUND = 1 << 36
"""Bytes kept aside for lend(), at most."""


class VaHeap:
    """Hands out disjoint ranges of ``[start, end)``; thread-safe. All numbers are bytes.

    Holes are kept by address, and by power of two of their size: a request takes the lowest hole of
    the classes that hold it for certain, so its cost does not grow with the number of small holes.

    One stretch of ground is kept aside for lend(), so that who does not know yet how much it needs
    takes the first bytes of it at next to no cost. It is as free as any hole.
    """

    def __init__(self, start: int, end: int) -> None:
        if not 0 < start < end:
            raise InvalidArgument("a heap of addresses must not be empty, nor hold address 0")
        self.start = start
        self.end = end
        self._lock = threading.Lock()
        self._holes: list[int] = []
        self._ends: dict[int, int] = {}
        self._classes: list[list[int]] = [[] for _ in range(65)]
        self._filled = 0
        """A bit for every class that has a hole."""
        self._taken: dict[int, int] = {}
        self._ground: tuple[int, int] | None = None
        """[start, end) that is in no hole."""
        self._ground_size = min(_GROUND, (end - start) // 8)
        self._add(start, end)

    def reserve(self, size: int, alignment: int = 1, phase: int = 0) -> int:
        """An address with ``address % alignment == phase`` and ``size`` bytes of its own."""
        if size <= 0 or alignment <= 0 or not 0 <= phase < alignment:
            raise InvalidArgument(
                "no such range of addresses", size=size, alignment=alignment, phase=phase
            )
        with self._lock:
            address = self._find(size, alignment, phase)
            if address is None and self._level_ground():
                address = self._find(size, alignment, phase)
            if address is None:
                raise OutOfDeviceMemory(
                    "no free range of GPU addresses is that large", size=size, alignment=alignment
                )
            self._take(address, size)
        return address

    def reserve_at(self, address: int, size: int) -> None:
        """Exactly ``[address, address + size)``."""
        if size <= 0:
            raise InvalidArgument("no such range of addresses", size=size)
        with self._lock:
            if not self._is_hole(address, size) and not (
                self._level_ground() and self._is_hole(address, size)
            ):
                raise InvalidArgument(
                    "that range of GPU addresses is not free",
                    address=address,
                    size=size,
                    hint="pass address=None to let the device choose",
                )
            self._take(address, size)

    def release(self, address: int, size: int) -> None:
        """Give back exactly what one reservation took."""
        with self._lock:
            if self._taken.get(address) != size:
                raise InvalidArgument("not a reserved range", address=address, size=size)
            del self._taken[address]
            ground = self._ground
            if ground is not None and ground[0] == address + size:
                self._ground = address, ground[1]
            else:
                self._free(address, address + size)

    def lend(self) -> tuple[int, int]:
        """``[start, end)`` of free addresses, the caller's until settle(); (0, 0) if there are too
        few.
        """
        with self._lock:
            ground, self._ground = self._ground, None
            if ground is not None:
                return ground
            size = self._ground_size
            # From the top, where nobody asks for an address.
            top = self._ends[self._holes[-1]] if self._holes else 0
            if not size or not self._holes or top - size < self._holes[-1]:
                return 0, 0
            self._take(top - size, size)
            del self._taken[top - size]
            return top - size, top

    def settle(self, ground: tuple[int, int], address: int, size: int) -> None:
        """Give lent ground back, but for ``[address, address + size)``, which is reserved from now
        on; size 0: all of it.
        """
        start, end = ground
        with self._lock:
            if size:
                self._taken[address] = size
                if start < address:
                    self._free(start, address)
                start = address + size
            if self._ground is None and end - start >= self._ground_size // 2 > 0:
                self._ground = start, end
            elif start < end:
                self._free(start, end)

    def _level_ground(self) -> bool:
        """Make a hole of what is kept aside; whether there was any."""
        ground, self._ground = self._ground, None
        if ground is not None:
            self._free(*ground)
        return ground is not None

    def _is_hole(self, address: int, size: int) -> bool:
        index = bisect_right(self._holes, address) - 1
        return index >= 0 and address + size <= self._ends[self._holes[index]]

    def _free(self, start: int, end: int) -> None:
        index = bisect_left(self._holes, start)
        if index < len(self._holes) and self._holes[index] == end:
            end = self._ends[self._holes[index]]
            self._remove(self._holes[index])
        if index > 0 and self._ends[self._holes[index - 1]] == start:
            start = self._holes[index - 1]
            self._remove(start)
        self._add(start, end)

    def _find(self, size: int, alignment: int, phase: int) -> int | None:
        sure = (size + alignment - 2).bit_length() + 1
        heads = [self._classes[number][0] for number in _bits(self._filled >> sure, sure)]
        candidates = [_aligned(min(heads), alignment, phase)] if heads else []
        # Smaller holes may hold it too. A few are tried, so that what was just given back is taken
        # again; all of them when nothing else is left.
        low = size.bit_length()
        for number in _bits((self._filled & ((1 << sure) - 1)) >> low, low):
            row = self._classes[number]
            for hole in row[:8] if heads else row:
                address = _aligned(hole, alignment, phase)
                if address + size <= self._ends[hole]:
                    candidates.append(address)
                    break
        return min(candidates, default=None)

    def _take(self, address: int, size: int) -> None:
        hole = self._holes[bisect_right(self._holes, address) - 1]
        end = self._ends[hole]
        self._remove(hole)
        if hole < address:
            self._add(hole, address)
        if address + size < end:
            self._add(address + size, end)
        self._taken[address] = size

    def _add(self, start: int, end: int) -> None:
        insort(self._holes, start)
        self._ends[start] = end
        number = (end - start).bit_length()
        insort(self._classes[number], start)
        self._filled |= 1 << number

    def _remove(self, start: int) -> None:
        del self._holes[bisect_left(self._holes, start)]
        number = (self._ends.pop(start) - start).bit_length()
        row = self._classes[number]
        del row[bisect_left(row, start)]
        if not row:
            self._filled &= ~(1 << number)


def _bits(mask: int, first: int) -> Iterator[int]:
    """The numbers of the bits that are set, counted from ``first``."""
    while mask:
        low = mask & -mask
        yield first + low.bit_length() - 1
        mask ^= low


def _aligned(address: int, alignment: int, phase: int) -> int:
    return address + (phase - address) % alignment
