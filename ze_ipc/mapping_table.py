"""All mappings, reservations and USM allocations of a context by VA; the walker's only input.

Pure bookkeeping: no lock (the caller holds one around every call), no device, no idea of pages: the
caller checks alignment. Every row holds exactly one reference of its object; what an edit makes of
them is its return value, and to take and give back references accordingly is the caller's job.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ze_ipc.chunked_rows import ChunkedRows
from ze_ipc.columns import Columns
from ze_ipc.errors import AddressNotFound, HandleObjectInUse, InvalidArgument, InvalidSize
from ze_ipc.intervals import Interval, Intervals

T = TypeVar("T")

VA_END = 1 << 64


class Span(NamedTuple):
    """A range of VA."""

    ptr: int
    """GPU VA of its first byte."""
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Unmapped:
    """What an unmap did to the references that rows hold; ``array('Q')`` of objects."""

    released: array[int]
    """One entry for every row that is gone: give its reference back."""
    retained: array[int]
    """One entry for every row that became two: take one more reference."""


class MappingTable:
    """Mappings as chunked columns: an edit costs the same among a thousand rows and a million."""

    def __init__(self) -> None:
        self._rows = ChunkedRows()
        self._reservations: Intervals[None] = Intervals()
        self._usm: Intervals[int] = Intervals()
        self._imports: Intervals[None] = Intervals()

    def __len__(self) -> int:
        """Number of mappings."""
        return len(self._rows)

    # Reservations

    def reserve(self, start: int, size: int) -> None:
        """Enter reserved VA; it may touch other reservations, not overlap them."""
        end = _end_of(start, size)
        _refuse_overlap(self._reservations, start, end, "overlaps a reservation")
        _refuse_overlap(self._usm, start, end, "overlaps a USM allocation")
        self._reservations.add(start, end, None)

    def unreserve(self, start: int, size: int) -> None:
        """Remove exactly one reservation; nothing may be mapped in it any more."""
        found = self._reservations.starting_at(start)
        if found is None or found.size != size:
            raise InvalidArgument("not a reservation", address=start, size=size)
        begin, end = self._rows.span(found.start, found.end)
        if begin < end:
            mapped = max(self._rows.first_start(begin), start)
            raise HandleObjectInUse("the reservation still has mappings", address=mapped)
        self._reservations.remove(start)

    def reservation_at(self, va: int) -> Span | None:
        """The reservation that contains this address."""
        return _span(self._reservations.at(va))

    # Mappings

    def map_extents(
        self,
        address: int,
        objects: array[int],
        offsets: array[int],
        sizes: array[int],
        access: array[int],
    ) -> None:
        """Map extents back to back from ``address`` on; each row takes over one reference.

        All bytes must be reserved (adjacent reservations count as one) and none mapped.
        """
        new = Columns.back_to_back(address, objects, offsets, sizes, access)
        end = new.ends[-1]
        gap = self._reservations.first_gap(address, end)
        if gap is not None:
            raise InvalidArgument(
                "not reserved",
                address=gap,
                size=end - address,
                hint="map inside a reservation (device.reserve)",
            )
        span = self._rows.span(address, end)
        if span[0] < span[1]:
            raise InvalidArgument(
                "already mapped",
                address=max(self._rows.first_start(span[0]), address),
                size=end - address,
                hint="unmap it first",
            )
        self._rows.replace(*span, new)

    def unmap(self, address: int, size: int) -> Unmapped:
        """Remove what is mapped in ``[address, address + size)``; rows reaching beyond are split.

        Holes are no error. It cannot fail once the arguments are in range, so do the device first.
        """
        end = _end_of(address, size)
        span = self._rows.span(address, end)
        rows = self._rows.copy(*span)
        count = len(rows)
        if count == 0:
            return Unmapped(array("Q"), array("Q"))
        rest = Columns.empty()
        first, last = 0, count
        if rows.starts[0] < address:
            first = 1
            rest.append(rows.starts[0], address, rows.objects[0], rows.offsets[0], rows.access[0])
        if rows.ends[-1] > end:
            last = count - 1
            offset = rows.offsets[-1] + end - rows.starts[-1]
            rest.append(end, rows.ends[-1], rows.objects[-1], offset, rows.access[-1])
        self._rows.replace(*span, rest)
        split_in_two = first > last
        return Unmapped(
            released=rows.objects[first:last],
            retained=rows.objects[:] if split_in_two else array("Q"),
        )

    def window(self, ptr: int, size: int) -> Columns:
        """A copy of the rows that have a byte in ``[ptr, ptr + size)``, whole (not clipped)."""
        return self._rows.between(ptr, ptr + size)

    def everything(self) -> Columns:
        """A copy of all rows."""
        return self._rows.copy(*self._rows.span(0, VA_END))

    def reservations(self) -> list[Interval[None]]:
        """All of them, in VA order."""
        return self._reservations.all_in(0, VA_END)

    def imports(self) -> list[Interval[None]]:
        """All imported windows, in VA order."""
        return self._imports.all_in(0, VA_END)

    def clear(self) -> array[int]:
        """Forget everything; the objects whose references the rows and the USM held."""
        objects = self._rows.clear().objects
        objects.extend(array("Q", (usm.value for usm in self._usm.all_in(0, VA_END))))
        for intervals in (self._reservations, self._usm, self._imports):
            intervals.clear()
        return objects

    # USM

    def add_usm(self, start: int, size: int, obj: int) -> None:
        """Enter an ordinary allocation, with its object's one reference."""
        end = _end_of(start, size)
        _refuse_overlap(self._reservations, start, end, "overlaps a reservation")
        _refuse_overlap(self._usm, start, end, "overlaps a USM allocation")
        self._usm.add(start, end, obj)

    def remove_usm(self, start: int, size: int) -> int:
        """Remove exactly one allocation; its object, whose reference the caller gives back."""
        found = self._usm.starting_at(start)
        if found is None or found.size != size:
            raise InvalidArgument("not a USM allocation", address=start, size=size)
        self._usm.remove(start)
        return found.value

    def usm_in(self, start: int, end: int) -> list[Interval[int]]:
        """The allocations that have a byte in ``[start, end)``; ``value`` is the object."""
        return self._usm.all_in(start, end) if self._usm.starts else []

    # Imported windows

    def add_import(self, ptr: int, size: int) -> None:
        """Enter the window of an imported range, whose pages are mapped as ordinary rows."""
        end = _end_of(ptr, size)
        _refuse_overlap(self._imports, ptr, end, "overlaps an imported range")
        self._imports.add(ptr, end, None)

    def remove_import(self, start: int, size: int) -> Span:
        """Remove the imported window that lies in these pages."""
        found = self._imports.first_in(start, start + size)
        if found is None or found.start < start or found.end > start + size:
            raise InvalidArgument("not an imported range", address=start, size=size)
        self._imports.remove(found.start)
        return Span(found.start, found.size)

    def import_at(self, va: int) -> Span | None:
        """The imported window that contains this address."""
        return _span(self._imports.at(va))

    # Questions about an address

    def address_range(self, va: int) -> Span:
        """What zeMemGetAddressRange says: the imported window, the mapping or the allocation."""
        found = self.import_at(va) or _span(self._usm.at(va))
        if found is not None:
            return found
        row = self._rows.row_at(va)
        if row is None:
            raise AddressNotFound("nothing is mapped here", call="address_range", address=va)
        return Span(row[0], row[1] - row[0])


def _span(interval: Interval[None] | Interval[int] | None) -> Span | None:
    return None if interval is None else Span(interval.start, interval.size)


def _end_of(start: int, size: int) -> int:
    if size <= 0:
        raise InvalidSize("a range of no bytes", address=start, size=size)
    if start < 0 or start + size > VA_END:
        raise InvalidArgument("outside the 64-bit address space", address=start, size=size)
    return start + size


def _refuse_overlap(intervals: Intervals[T], start: int, end: int, cause: str) -> None:
    found = intervals.first_in(start, end)
    if found is not None:
        raise InvalidArgument(cause, address=max(found.start, start), size=end - start)
