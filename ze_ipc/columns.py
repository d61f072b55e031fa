"""Mappings as parallel columns, not objects: a window of a million of them is a few slices."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import accumulate

from ze_ipc import lanes
from ze_ipc.errors import InvalidArgument, InvalidSize


@dataclass(slots=True)
class Columns:
    """Mappings in VA order, one index a mapping; they never overlap.

    Starts, ends and offsets are bytes; all columns are ``array('Q')`` but ``access``, which is
    ``array('B')`` of backend access bits.
    """

    starts: array[int]
    """GPU VA of the first byte."""
    ends: array[int]
    """GPU VA after the last byte."""
    objects: array[int]
    """Physical memory objects: opaque integers."""
    offsets: array[int]
    """Where in the object the mapping starts."""
    access: array[int]

    @classmethod
    def empty(cls) -> Columns:
        """No mappings."""
        return cls(array("Q"), array("Q"), array("Q"), array("Q"), array("B"))

    @classmethod
    def back_to_back(
        cls,
        address: int,
        objects: array[int],
        offsets: array[int],
        sizes: array[int],
        access: array[int],
    ) -> Columns:
        """Mappings that follow each other without a hole from ``address`` on."""
        count = len(sizes)
        if not len(objects) == len(offsets) == len(access) == count:
            raise InvalidArgument("the columns of a mapping differ in length")
        if count == 0:
            raise InvalidSize("nothing to map")
        try:
            positions = _positions(address, sizes)
        except OverflowError:
            raise InvalidArgument(
                "the mapping ends beyond the address space", address=address, size=sum(sizes)
            ) from None
        return cls(positions[:-1], positions[1:], objects[:], offsets[:], access[:])

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> array[int]:
        """Bytes of each mapping; computed anew each time."""
        return lanes.difference(self.ends, self.starts)

    def rows(self, begin: int, end: int) -> Columns:
        """A copy of the rows ``[begin, end)``."""
        return Columns(
            self.starts[begin:end],
            self.ends[begin:end],
            self.objects[begin:end],
            self.offsets[begin:end],
            self.access[begin:end],
        )

    def extend(self, other: Columns) -> None:
        """Append rows that start at or after the end of these."""
        self.starts.extend(other.starts)
        self.ends.extend(other.ends)
        self.objects.extend(other.objects)
        self.offsets.extend(other.offsets)
        self.access.extend(other.access)

    def append(self, start: int, end: int, obj: int, offset: int, access: int) -> None:
        """Append one row that starts at or after the end of these."""
        self.starts.append(start)
        self.ends.append(end)
        self.objects.append(obj)
        self.offsets.append(offset)
        self.access.append(access)

    def splice(self, begin: int, end: int, new: Columns) -> None:
        """Replace the rows ``[begin, end)``."""
        self.starts[begin:end] = new.starts
        self.ends[begin:end] = new.ends
        self.objects[begin:end] = new.objects
        self.offsets[begin:end] = new.offsets
        self.access[begin:end] = new.access

    def clipped(self, start: int, end: int) -> Columns:
        """A copy without what the first and the last row have outside ``[start, end)``, which they
        must touch.
        """
        rows = self.rows(0, len(self))
        rows.clip(start, end)
        return rows

    def clip(self, start: int, end: int) -> None:
        """clipped() in place."""
        if self.starts:
            before = start - self.starts[0]
            if before > 0:
                self.starts[0] = start
                self.offsets[0] += before
            self.ends[-1] = min(self.ends[-1], end)

    def first_hole(self, start: int, end: int) -> tuple[int, int] | None:
        """The lowest ``[from, to)`` in ``[start, end)`` that no row has, or None; to is where the
        next row starts, or ``end``. The rows must touch the range.
        """
        if not self.starts:
            return start, end
        if self.starts[0] > start:
            return start, self.starts[0]
        followers, ends = self.starts[1:], self.ends[:-1]
        if followers != ends:
            return next((b, a) for a, b in zip(followers, ends, strict=True) if a != b)
        return (self.ends[-1], end) if self.ends[-1] < end else None


def _positions(address: int, sizes: array[int]) -> array[int]:
    """Where each of the back-to-back sizes starts, and where the last one ends."""
    first = sizes[0]
    if sizes == array("Q", (first,)) * len(sizes) and first:
        return array("Q", range(address, address + first * len(sizes) + 1, first))
    if 0 in sizes:
        raise InvalidSize("a mapping of 0 bytes", object_index=sizes.index(0))
    return array("Q", accumulate(sizes, initial=address))
