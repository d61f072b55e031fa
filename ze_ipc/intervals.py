"""Disjoint address intervals in order, each with a value."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Interval(Generic[T]):
    """``[start, end)`` in bytes of VA, and what it stands for."""

    start: int
    end: int
    value: T

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


class Intervals(Generic[T]):
    """A sorted set of disjoint intervals: reservations, USM allocations, imported windows."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        """Of all intervals, ascending; to look at only."""
        self._items: list[Interval[T]] = []

    def __len__(self) -> int:
        return len(self._items)

    def at(self, va: int) -> Interval[T] | None:
        """The interval that contains this address."""
        return self.first_in(va, va + 1)

    def starting_at(self, start: int) -> Interval[T] | None:
        """The interval with exactly this start."""
        found = self.at(start)
        return found if found and found.start == start else None

    def first_in(self, start: int, end: int) -> Interval[T] | None:
        """The lowest interval that has a byte in ``[start, end)``."""
        index = self._first_index(start)
        if index < len(self._items) and self._items[index].start < end:
            return self._items[index]
        return None

    def all_in(self, start: int, end: int) -> list[Interval[T]]:
        """Every interval that has a byte in ``[start, end)``, in order."""
        return self._items[self._first_index(start) : bisect_left(self.starts, end)]

    def first_gap(self, start: int, end: int) -> int | None:
        """The first address of ``[start, end)`` that no interval contains, or None."""
        index = self._first_index(start)
        while start < end:
            if index == len(self._items) or self._items[index].start > start:
                return start
            start = self._items[index].end
            index += 1
        return None

    def add(self, start: int, end: int, value: T) -> None:
        """Add an interval; the caller has made sure that it overlaps none."""
        index = bisect_left(self.starts, start)
        self.starts.insert(index, start)
        self._items.insert(index, Interval(start, end, value))

    def remove(self, start: int) -> None:
        """Remove the interval with exactly this start; it must exist."""
        index = bisect_left(self.starts, start)
        del self.starts[index], self._items[index]

    def clear(self) -> None:
        """Remove all."""
        self.starts.clear()
        self._items.clear()

    def _first_index(self, address: int) -> int:
        """Index of the first interval that ends after ``address``."""
        index = bisect_right(self.starts, address)
        return index - 1 if index and self._items[index - 1].end > address else index
